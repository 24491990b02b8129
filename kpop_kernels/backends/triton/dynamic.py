"""The dynamic map on the device: values by code, and the exact search for the nearest of them."""

import triton
import triton.language as tl

from ...codebooks import BUCKET_BITS, FIRST_BUCKET
from .blocks import SMALLEST_NORMAL, flush
from .memory import load_operand

BITS = tl.constexpr(BUCKET_BITS)
FIRST = tl.constexpr(FIRST_BUCKET)
SMALLEST_BITS = tl.constexpr(FIRST_BUCKET << BUCKET_BITS)
LAST_BITS = tl.constexpr((1 << BUCKET_BITS) - 1)
MAGNITUDE_BITS = tl.constexpr(0x7FFFFFFF)
INFINITY_BITS = tl.constexpr(0x7F800000)
ONE_BITS = tl.constexpr(0x3F800000)
LARGEST_NEGATIVE = tl.constexpr(127)


@triton.jit
def block_absmax(x):
    """Return the largest magnitude of every row; NaN is beyond Inf. Bit patterns order like the values."""
    magnitude = x.to(tl.int32, bitcast=True) & MAGNITUDE_BITS
    return flush(tl.max(magnitude, axis=1).to(tl.float32, bitcast=True))


@triton.jit
def dynamic_codes(x, absmax, buckets_ptr, SIGNED: tl.constexpr):
    """Return the codes of the rows of x, and their absmax as it is stored: NaN for rows with NaN or Inf.

    These and rows of zeros hold the code of 0. Above 2¹²⁶ the reciprocal would be subnormal; scaling by a power
    of two is exact.
    """
    finite = absmax.to(tl.int32, bitcast=True) < INFINITY_BITS
    usable = finite & (absmax >= SMALLEST_NORMAL)
    prescale = tl.where(absmax >= 2.0**126, 2.0**-8, 1.0)
    inverse = tl.div_rn(1.0, tl.where(usable, absmax * prescale, 1.0))
    y = flush(x) * prescale[:, None] * inverse[:, None]
    codes = _nearest(y, buckets_ptr, SIGNED)
    codes = tl.where(usable[:, None], codes, LARGEST_NEGATIVE if SIGNED else 0)
    return codes, tl.where(finite, absmax, float("nan"))


@triton.jit
def _nearest(y, buckets_ptr, SIGNED: tl.constexpr):
    """Return the code nearest to y, the lower one where two are equally near.

    A bucket holds the number of midpoints below it in the low byte, and above that the last bits of the one
    midpoint that it may have: one load and one comparison are exact.
    """
    bits = y.to(tl.int32, bitcast=True)
    # The clamp keeps rows that are not usable inside the table, and negative y of the unsigned map at 0.
    magnitude = bits & MAGNITUDE_BITS if SIGNED else bits
    magnitude = tl.minimum(tl.maximum(magnitude, SMALLEST_BITS), ONE_BITS)
    bucket = load_operand(buckets_ptr + ((magnitude >> BITS) - FIRST))
    place = magnitude & LAST_BITS
    below = bucket & 0xFF
    if SIGNED:
        # The lower code of a negative tie is that of the larger magnitude.
        negative = bits < 0
        index = below + (place + negative.to(tl.int32) > bucket >> 8).to(tl.int32)
        codes = tl.where(negative, tl.maximum(LARGEST_NEGATIVE - index, 0), LARGEST_NEGATIVE + index)
    else:
        codes = below + (place > bucket >> 8).to(tl.int32)
    return codes


@triton.jit
def dynamic_values(codes, absmax, values_ptr):
    """Return map[codes]·absmax of every row with one rounding; results below 2⁻¹²⁶ are 0."""
    return flush(load_operand(values_ptr + codes.to(tl.int32)) * absmax[:, None])
