"""The affine grid of a block and the codes on it, every operation in the order that the bits are promised in."""

import triton
import triton.language as tl

from .blocks import SMALLEST_NORMAL, flush

SIGN_BIT = tl.constexpr(0x80000000)
LARGEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def block_range(x):
    """Return the smallest and the largest value of every row with 0 among them; NaN and Inf come through.

    Bit patterns order like the values: as signed integers those of positive values, as unsigned ones those of
    negative values, and NaN is beyond Inf.
    """
    hi = tl.maximum(tl.max(x.to(tl.int32, bitcast=True), axis=1), 0).to(tl.float32, bitcast=True)
    lo = tl.max(x.to(tl.uint32, bitcast=True), axis=1)
    lo = tl.where(lo >= SIGN_BIT, lo, 0).to(tl.float32, bitcast=True)
    return flush(lo), flush(hi)


@triton.jit
def affine_grid(lo, hi, PAPER: tl.constexpr):
    """Return scale, its reciprocal and zero point of ranges that hold 0.

    Ranges with NaN, Inf or an overflow get scale NaN, those too small for a normal scale 0. Both have
    reciprocal 0 and zero point 0.
    """
    scale = tl.div_rn(hi - lo, 255.0 if PAPER else 254.0)
    finite = scale <= LARGEST
    usable = finite & (scale >= SMALLEST_NORMAL)
    inverse = tl.where(usable, tl.div_rn(1.0, tl.where(usable, scale, 1.0)), 0.0)
    ratio = flush(tl.where(usable, -lo, 0.0) * inverse)
    zero_point = tl.floor(ratio + 0.5) if PAPER else tl.ceil(ratio)
    scale = tl.where(usable, scale, tl.where(finite, 0.0, float("nan")))
    return scale, inverse, tl.minimum(zero_point, 255.0).to(tl.int32)


@triton.jit
def affine_codes(k, scale, zero_point):
    """Return the codes of rounded multiples of each row's scale; rows without a usable scale are 0."""
    codes = tl.minimum(tl.maximum(k + zero_point[:, None], 0), 255)
    return tl.where((scale > 0.0)[:, None], codes, 0)


@triton.jit
def round_nearest(y):
    """Return ⌊y + ½⌋."""
    return tl.floor(y + 0.5).to(tl.int32)


@triton.jit
def round_stochastic(y, random):
    """Return ⌊y⌋, plus one where the 16 random bits are below 2¹⁶ times the fraction, which may round to 1."""
    floor = tl.floor(y)
    threshold = ((y - floor) * 65536.0).to(tl.int32)
    return floor.to(tl.int32) + (random < threshold).to(tl.int32)


@triton.jit
def affine_values(codes, scale, zero_point):
    """Return (codes - zero_point)·scale of every row: the difference in integers, one rounding."""
    return (codes.to(tl.int32) - zero_point.to(tl.int32)[:, None]).to(tl.float32) * scale[:, None]
