"""8-bit blocks on the dynamic map."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...codebooks import dynamic_buckets, dynamic_map
from ...tuning import BLOCKWISE, BlockwiseConfig
from .._dense import dense
from .blocks import block_tile, launch_on_blocks, tile
from .dynamic import block_absmax, dynamic_codes, dynamic_values
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
    first_block, offsets, inside = tile(tl.program_id(0), n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    x = load_as_float32(x_ptr + first + offsets, inside)
    codes, absmax = dynamic_codes(x, block_absmax(x), buckets_ptr, SIGNED)
    store_rounded(codes_ptr + first + offsets, codes, inside)
    blocks, exist = block_tile(tl.program_id(0), n, BLOCKS, BLOCK_SIZE)
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
    first_block, offsets, inside = tile(tl.program_id(0), n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    blocks, exist = block_tile(tl.program_id(0), n, BLOCKS, BLOCK_SIZE)
    absmax = load_as_float32(absmax_ptr + first_block + blocks, exist)
    codes = load_operand(codes_ptr + first + offsets, inside)
    store_rounded(out_ptr + first + offsets, dynamic_values(codes, absmax, values_ptr), inside)
