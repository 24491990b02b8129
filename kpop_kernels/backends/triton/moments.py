"""A program's part of a moving average in 8-bit blocks: restore, average, quantize."""

import triton
import triton.language as tl

from .affine import affine_codes, affine_grid, affine_values, block_range, round_stochastic
from .blocks import block_tile, flush, tile
from .dynamic import block_absmax, dynamic_codes, dynamic_values
from .memory import load_as_float32, load_operand, store_rounded
from .philox import calls_of, random16


@triton.jit
def ema_int8(
    codes_ptr,
    scales_ptr,
    zero_points_ptr,
    x,
    program,
    n,
    beta,
    one_minus_beta,
    seed,
    step,
    stream,
    offset,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    """Return m = beta·m + (1 - beta)·x of the program's tile, and round it stochastically into its blocks."""
    first_block, offsets, inside = tile(program, n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    blocks, exist = block_tile(program, n, BLOCKS, BLOCK_SIZE)
    return ema_int8_of_rows(
        *(codes_ptr + first, scales_ptr + first_block, zero_points_ptr + first_block, x),
        *(offsets, inside, blocks, exist, beta, one_minus_beta),
        *(seed, step, stream, offset, calls_of(first, BLOCK_SIZE, BLOCKS, COLUMNS), SHIFTED),
    )


@triton.jit
def ema_int8_of_rows(
    codes_ptr,
    scales_ptr,
    zero_points_ptr,
    x,
    offsets,
    inside,
    blocks,
    exist,
    beta,
    one_minus_beta,
    seed,
    step,
    stream,
    offset,
    calls,
    SHIFTED: tl.constexpr,
):
    """Do that for a tile whose rows are blocks, at offsets from its first element and block; see `random16`."""
    scale = load_as_float32(scales_ptr + blocks, exist)
    zero_point = load_operand(zero_points_ptr + blocks, exist)
    codes = load_operand(codes_ptr + offsets, inside)
    mean = beta * affine_values(codes, scale, zero_point) + one_minus_beta * x
    # What is not there must not widen a range: an old zero point is not 0 there.
    mean = tl.where(inside, mean, 0.0)

    lo, hi = block_range(mean)
    scale, inverse, zero_point = affine_grid(lo, hi, False)
    k = round_stochastic(flush(mean) * inverse[:, None], random16(calls, seed, step, stream, offset, SHIFTED))
    store_rounded(codes_ptr + offsets, affine_codes(k, scale, zero_point), inside)
    store_rounded(scales_ptr + blocks, scale, exist)
    store_rounded(zero_points_ptr + blocks, zero_point, exist)
    return mean


@triton.jit
def ema_sq_dynamic8(
    codes_ptr,
    absmax_ptr,
    values_ptr,
    buckets_ptr,
    x,
    program,
    n,
    beta,
    one_minus_beta,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Return v = beta·v + ((1 - beta)·x)·x of the program's tile, and put its nearest codes into its blocks."""
    first_block, offsets, inside = tile(program, n, BLOCKS, BLOCK_SIZE, COLUMNS)
    blocks, exist = block_tile(program, n, BLOCKS, BLOCK_SIZE)
    return ema_sq_dynamic8_of_rows(
        *(codes_ptr + first_block * BLOCK_SIZE, absmax_ptr + first_block, values_ptr, buckets_ptr, x),
        *(offsets, inside, blocks, exist, beta, one_minus_beta),
    )


@triton.jit
def ema_sq_dynamic8_of_rows(
    codes_ptr,
    absmax_ptr,
    values_ptr,
    buckets_ptr,
    x,
    offsets,
    inside,
    blocks,
    exist,
    beta,
    one_minus_beta,
):
    """Do that for a tile whose rows are blocks, at offsets from its first element and block."""
    absmax = load_as_float32(absmax_ptr + blocks, exist)
    codes = load_operand(codes_ptr + offsets, inside)
    mean = beta * dynamic_values(codes, absmax, values_ptr) + (one_minus_beta * x) * x

    codes, absmax = dynamic_codes(mean, block_absmax(mean), buckets_ptr, False)
    store_rounded(codes_ptr + offsets, codes, inside)
    store_rounded(absmax_ptr + blocks, absmax, exist)
    return mean
