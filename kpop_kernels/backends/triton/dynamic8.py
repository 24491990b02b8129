"""8-bit blocks on the dynamic map."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...codebooks import dynamic_buckets, dynamic_map
from ...tuning import BLOCKWISE, BlockwiseConfig
from .._dense import dense, dense_lists
from .blocks import block_tile, launch_on_blocks, tile
from .dynamic import block_absmax, dynamic_codes, dynamic_values
from .lists import Item, grouped, item_of, launch_on_lists, tensor_of
from .memory import load_as_float32, load_operand, store_rounded


def quantize_dynamic8(
    x: Tensor,
    *,
    block_size: int = 256,
    signed: bool = False,
    out: tuple[Tensor, Tensor],
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Write codes and absmax."""
    n = x.numel()
    with dense(*out) as results:
        arguments = (x.contiguous(), *results, dynamic_buckets(signed, x.device), n)
        launch_on_blocks(quantize_dynamic8_kernel, arguments, n, block_size, config, SIGNED=signed)


def dequantize_dynamic8(
    codes: Tensor,
    absmax: Tensor,
    *,
    block_size: int = 256,
    signed: bool = False,
    dtype: torch.dtype = torch.float32,
    out: Tensor,
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Write map[codes]·absmax."""
    n = codes.numel()
    inputs = (codes.contiguous(), absmax.contiguous(), dynamic_map(signed, codes.device))
    with dense(out) as (result,):
        launch_on_blocks(dequantize_dynamic8_kernel, (*inputs, result, n), n, block_size, config)


@grouped(quantize_dynamic8)
def quantize_dynamic8_foreach(
    x: Sequence[Tensor],
    *,
    block_size: int = 256,
    signed: bool = False,
    out: tuple[Sequence[Tensor], Sequence[Tensor]],
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Write codes and absmax of a list."""
    values = [item.contiguous() for item in x]
    arguments = (dynamic_buckets(signed, x[0].device),)
    with dense_lists(*out) as results:
        items = [Item(each[0].numel(), each) for each in zip(values, *results, strict=True)]
        launch_on_lists(quantize_dynamic8_list_kernel, items, arguments, block_size, config, SIGNED=signed)


@grouped(dequantize_dynamic8)
def dequantize_dynamic8_foreach(
    codes: Sequence[Tensor],
    absmax: Sequence[Tensor],
    *,
    block_size: int = 256,
    signed: bool = False,
    dtype: torch.dtype = torch.float32,
    out: Sequence[Tensor],
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Write map[codes]·absmax of a list."""
    sources = [[item.contiguous() for item in each] for each in (codes, absmax)]
    arguments = (dynamic_map(signed, codes[0].device),)
    with dense_lists(out) as (results,):
        items = [Item(each[0].numel(), each) for each in zip(*sources, results, strict=True)]
        launch_on_lists(dequantize_dynamic8_list_kernel, items, arguments, block_size, config)


# 5 + 4/256 bytes an element from float32, 3 + 4/256 from 16 bits; the table of 12 KB stays in the first cache.
@triton.jit
def quantize_dynamic8_kernel(
    x_ptr,
    codes_ptr,
    absmax_ptr,
    buckets_ptr,
    n,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    SIGNED: tl.constexpr,
):
    """Quantize BLOCKS blocks."""
    program = tl.program_id(0)
    _quantize(x_ptr, codes_ptr, absmax_ptr, buckets_ptr, program, n, BLOCKS, BLOCK_SIZE, COLUMNS, SIGNED)


@triton.jit
def quantize_dynamic8_list_kernel(
    table_ptr,
    items,
    buckets_ptr,
    TYPES: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    SIGNED: tl.constexpr,
):
    """Quantize BLOCKS blocks of an item."""
    row, program, n, _, _ = item_of(table_ptr, items, 3, ALIGNED)
    _quantize(
        tensor_of(row, 0, TYPES, ALIGNED),
        tensor_of(row, 1, TYPES, ALIGNED),
        tensor_of(row, 2, TYPES, ALIGNED),
        *(buckets_ptr, program, n, BLOCKS, BLOCK_SIZE, COLUMNS, SIGNED),
    )


@triton.jit
def _quantize(
    x_ptr,
    codes_ptr,
    absmax_ptr,
    buckets_ptr,
    program,
    n,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    SIGNED: tl.constexpr,
):
    first_block, offsets, inside = tile(program, n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    x = load_as_float32(x_ptr + first + offsets, inside)
    codes, absmax = dynamic_codes(x, block_absmax(x), buckets_ptr, SIGNED)
    store_rounded(codes_ptr + first + offsets, codes, inside)
    blocks, exist = block_tile(program, n, BLOCKS, BLOCK_SIZE)
    store_rounded(absmax_ptr + first_block + blocks, absmax, exist)


# 5 + 4/256 bytes an element to float32, 3 + 4/256 to 16 bits; the table of 1 KB stays in the first cache.
@triton.jit
def dequantize_dynamic8_kernel(
    codes_ptr,
    absmax_ptr,
    values_ptr,
    out_ptr,
    n,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Restore BLOCKS blocks."""
    program = tl.program_id(0)
    _restore(codes_ptr, absmax_ptr, values_ptr, out_ptr, program, n, BLOCKS, BLOCK_SIZE, COLUMNS)


@triton.jit
def dequantize_dynamic8_list_kernel(
    table_ptr,
    items,
    values_ptr,
    TYPES: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Restore BLOCKS blocks of an item."""
    row, program, n, _, _ = item_of(table_ptr, items, 3, ALIGNED)
    _restore(
        tensor_of(row, 0, TYPES, ALIGNED),
        tensor_of(row, 1, TYPES, ALIGNED),
        values_ptr,
        tensor_of(row, 2, TYPES, ALIGNED),
        *(program, n, BLOCKS, BLOCK_SIZE, COLUMNS),
    )


@triton.jit
def _restore(
    codes_ptr,
    absmax_ptr,
    values_ptr,
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
    absmax = load_as_float32(absmax_ptr + first_block + blocks, exist)
    codes = load_operand(codes_ptr + first + offsets, inside)
    store_rounded(out_ptr + first + offsets, dynamic_values(codes, absmax, values_ptr), inside)
