"""Affine 8-bit blocks."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import BLOCKWISE, BlockwiseConfig
from .._dense import dense, dense_lists
from .affine import affine_codes, affine_grid, affine_values, block_range, round_nearest, round_stochastic
from .blocks import block_tile, flush, launch_on_blocks, tile
from .lists import Item, grouped, item_of, launch_on_lists, tensor_of
from .memory import load_as_float32, load_operand, store_rounded
from .philox import UNSPECIALIZED, calls_of, is_shifted, random16, random_arguments, unsigned
from .step_scalars import spaced, vector


def quantize_int8(
    x: Tensor,
    *,
    block_size: int = 256,
    rounding: str = "stochastic",
    seed: int = 0,
    step: Tensor | None = None,
    stream: int = 0,
    offset: int = 0,
    mode: str = "unbiased",
    out: tuple[Tensor, Tensor, Tensor],
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Write codes, scales and zero points."""
    n = x.numel()
    random = (*random_arguments(seed, step, x.device), stream, offset)
    with dense(*out) as results:
        launch_on_blocks(
            quantize_int8_kernel,
            (x.contiguous(), *results, n, *random),
            n,
            block_size,
            config,
            STOCHASTIC=rounding == "stochastic",
            PAPER=mode == "paper",
            SHIFTED=is_shifted(offset),
        )


def dequantize_int8(
    codes: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    *,
    block_size: int = 256,
    dtype: torch.dtype = torch.float32,
    out: Tensor,
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Write (codes - zero_points)·scales."""
    n = codes.numel()
    inputs = (codes.contiguous(), scales.contiguous(), zero_points.contiguous())
    with dense(out) as (result,):
        launch_on_blocks(dequantize_int8_kernel, (*inputs, result, n), n, block_size, config)


@grouped(quantize_int8)
def quantize_int8_foreach(
    x: Sequence[Tensor],
    *,
    block_size: int = 256,
    rounding: str = "stochastic",
    seed: int = 0,
    step: Sequence[Tensor | None],
    stream: Sequence[int],
    offset: Sequence[int],
    mode: str = "unbiased",
    out: tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]],
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Write codes, scales and zero points of a list."""
    with dense_lists(*out) as results:
        steps = spaced(vector(step, x[0].device))
        columns = zip([item.contiguous() for item in x], *results, steps, strict=True)
        items = [Item(each[0].numel(), each, *at) for each, *at in zip(columns, stream, offset, strict=True)]
        launch_on_lists(
            quantize_int8_list_kernel,
            items,
            (unsigned(seed),),
            block_size,
            config,
            STOCHASTIC=rounding == "stochastic",
            PAPER=mode == "paper",
        )


@grouped(dequantize_int8)
def dequantize_int8_foreach(
    codes: Sequence[Tensor],
    scales: Sequence[Tensor],
    zero_points: Sequence[Tensor],
    *,
    block_size: int = 256,
    dtype: torch.dtype = torch.float32,
    out: Sequence[Tensor],
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Write (codes - zero_points)·scales of a list."""
    sources = [[item.contiguous() for item in each] for each in (codes, scales, zero_points)]
    with dense_lists(out) as (results,):
        items = [Item(each[0].numel(), each) for each in zip(*sources, results, strict=True)]
        launch_on_lists(dequantize_int8_list_kernel, items, (), block_size, config)


# 1 byte and 5 a block are written; with 4 bytes read that is 5 + 5/256 an element from float32, 3 + 5/256 from
# bfloat16. Bound by memory from float32 and by instructions from bfloat16.
@triton.jit(do_not_specialize=UNSPECIALIZED)
def quantize_int8_kernel(
    x_ptr,
    codes_ptr,
    scales_ptr,
    zero_points_ptr,
    n,
    seed: tl.uint64,
    step,
    stream: tl.uint32,
    offset: tl.int64,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    PAPER: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    """Quantize BLOCKS blocks."""
    program = tl.program_id(0)
    _quantize(
        *(x_ptr, codes_ptr, scales_ptr, zero_points_ptr, program, n, seed, step, stream, offset),
        *(BLOCKS, BLOCK_SIZE, COLUMNS, STOCHASTIC, PAPER, SHIFTED),
    )


@triton.jit(do_not_specialize=UNSPECIALIZED)
def quantize_int8_list_kernel(
    table_ptr,
    items,
    seed: tl.uint64,
    TYPES: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    PAPER: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    """Quantize BLOCKS blocks of an item."""
    row, program, n, stream, offset = item_of(table_ptr, items, 5, ALIGNED)
    step = tensor_of(row, 4, TYPES, ALIGNED)
    _quantize(
        tensor_of(row, 0, TYPES, ALIGNED),
        tensor_of(row, 1, TYPES, ALIGNED),
        tensor_of(row, 2, TYPES, ALIGNED),
        tensor_of(row, 3, TYPES, ALIGNED),
        *(program, n, seed, step, stream, offset),
        *(BLOCKS, BLOCK_SIZE, COLUMNS, STOCHASTIC, PAPER, SHIFTED),
    )


@triton.jit
def _quantize(
    x_ptr,
    codes_ptr,
    scales_ptr,
    zero_points_ptr,
    program,
    n,
    seed,
    step,
    stream,
    offset,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    PAPER: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    first_block, offsets, inside = tile(program, n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    x = load_as_float32(x_ptr + first + offsets, inside)
    lo, hi = block_range(x)
    scale, inverse, zero_point = affine_grid(lo, hi, PAPER)
    y = flush(x) * inverse[:, None]
    if STOCHASTIC:
        random = random16(calls_of(first, BLOCK_SIZE, BLOCKS, COLUMNS), seed, step, stream, offset, SHIFTED)
        k = round_stochastic(y, random)
    else:
        k = round_nearest(y)
    store_rounded(codes_ptr + first + offsets, affine_codes(k, scale, zero_point), inside)
    blocks, exist = block_tile(program, n, BLOCKS, BLOCK_SIZE)
    store_rounded(scales_ptr + first_block + blocks, scale, exist)
    store_rounded(zero_points_ptr + first_block + blocks, zero_point, exist)


# 5 + 5/256 bytes an element to float32, 3 + 5/256 to 16 bits. Bound by memory.
@triton.jit
def dequantize_int8_kernel(
    codes_ptr,
    scales_ptr,
    zero_points_ptr,
    out_ptr,
    n,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Restore BLOCKS blocks."""
    program = tl.program_id(0)
    _restore(codes_ptr, scales_ptr, zero_points_ptr, out_ptr, program, n, BLOCKS, BLOCK_SIZE, COLUMNS)


@triton.jit
def dequantize_int8_list_kernel(
    table_ptr,
    items,
    TYPES: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Restore BLOCKS blocks of an item."""
    row, program, n, _, _ = item_of(table_ptr, items, 4, ALIGNED)
    _restore(
        tensor_of(row, 0, TYPES, ALIGNED),
        tensor_of(row, 1, TYPES, ALIGNED),
        tensor_of(row, 2, TYPES, ALIGNED),
        tensor_of(row, 3, TYPES, ALIGNED),
        *(program, n, BLOCKS, BLOCK_SIZE, COLUMNS),
    )


@triton.jit
def _restore(
    codes_ptr,
    scales_ptr,
    zero_points_ptr,
    out_ptr,
    program,
    n,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    first_block, offsets, inside = tile(program, n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    blocks, exist = block_tile(program, n, BLOCKS, BLOCK_SIZE)
    scale = load_as_float32(scales_ptr + first_block + blocks, exist)
    zero_point = load_operand(zero_points_ptr + first_block + blocks, exist)
    codes = load_operand(codes_ptr + first + offsets, inside)
    store_rounded(out_ptr + first + offsets, affine_values(codes, scale, zero_point), inside)
