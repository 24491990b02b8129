"""Stochastic rounding of float32 to bfloat16, in integer arithmetic on the bits."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import BLOCKWISE, BlockwiseConfig
from .._dense import dense
from .blocks import launch_on_blocks, tile
from .memory import load_operand, store_rounded
from .philox import UNSPECIALIZED, calls_of, is_shifted, random16, random_arguments

MAGNITUDE_BITS = tl.constexpr(0x7FFFFFFF)
LARGEST_BF16_BITS = tl.constexpr(0x7F7F0000)
INFINITY_BITS = tl.constexpr(0x7F800000)
QUIET = tl.constexpr(0x0040)


def stochastic_round_bf16(
    x: Tensor,
    *,
    seed: int,
    step: Tensor,
    stream: int,
    offset: int = 0,
    out: Tensor,
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Add 16 random bits below the bits that stay, and cut; beyond the largest bfloat16 cut only."""
    n = x.numel()
    random = (*random_arguments(seed, step, x.device), stream, offset)
    with dense(out) as (result,):
        launch_on_blocks(
            stochastic_round_bf16_kernel,
            (x.contiguous().view(torch.int32), result.view(torch.int16), n, *random),
            n,
            config.elements,
            config,
            SHIFTED=is_shifted(offset),
        )


# 6 bytes an element. Tensors are those of the bits.
@triton.jit(do_not_specialize=UNSPECIALIZED)
def stochastic_round_bf16_kernel(
    x_ptr,
    out_ptr,
    n,
    seed: tl.uint64,
    step,
    stream: tl.uint32,
    offset: tl.int64,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    """Round a tile."""
    first_block, offsets, inside = tile(tl.program_id(0), n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    bits = load_operand(x_ptr + first + offsets, inside)
    random = random16(calls_of(first, BLOCK_SIZE, BLOCKS, COLUMNS), seed, step, stream, offset, SHIFTED)
    magnitude = bits & MAGNITUDE_BITS
    rounded = (bits + tl.where(magnitude > LARGEST_BF16_BITS, 0, random)) >> 16
    rounded = tl.where(magnitude > INFINITY_BITS, rounded | QUIET, rounded)
    store_rounded(out_ptr + first + offsets, rounded, inside)
