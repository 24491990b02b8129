"""Moving averages kept in 8-bit blocks, each in one pass over memory."""

import triton
import triton.language as tl
from torch import Tensor

from ...codebooks import dynamic_buckets, dynamic_map
from ...tuning import BLOCKWISE, BlockwiseConfig
from .._dense import dense
from .blocks import launch_on_blocks, tile
from .memory import load_as_float32, store_rounded
from .moments import ema_int8, ema_sq_dynamic8
from .philox import UNSPECIALIZED, is_shifted, random_arguments


def ema_int8_(
    codes: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    x: Tensor,
    *,
    beta: float,
    seed: int,
    step: Tensor,
    stream: int,
    offset: int = 0,
    block_size: int = 256,
    out: Tensor,
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Write m = beta·m + (1 - beta)·x to out and round it stochastically into the blocks."""
    n = x.numel()
    random = random_arguments(seed, step, stream, offset, x.device)
    with dense(codes, scales, zero_points, out) as (*blocks, mean):
        arguments = (*blocks, x.contiguous(), mean, n, beta, 1 - beta, *random)
        launch_on_blocks(ema_int8_kernel, arguments, n, block_size, config, SHIFTED=is_shifted(offset))


def ema_sq_dynamic8_(
    codes: Tensor,
    absmax: Tensor,
    x: Tensor,
    *,
    beta: float,
    block_size: int = 256,
    out: Tensor,
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Write v = beta·v + ((1 - beta)·x)·x to out and its nearest codes into the blocks."""
    n = x.numel()
    tables = (dynamic_map(False, x.device), dynamic_buckets(False, x.device))
    with dense(codes, absmax, out) as (*blocks, mean):
        arguments = (*blocks, *tables, x.contiguous(), mean, n, beta, 1 - beta)
        launch_on_blocks(ema_sq_dynamic8_kernel, arguments, n, block_size, config)


# 10 + 10/256 bytes an element from float32, 8 + 10/256 from 16 bits: x and the codes are read, the codes and the
# float32 average written.
@triton.jit(do_not_specialize=UNSPECIALIZED)
def ema_int8_kernel(
    codes_ptr,
    scales_ptr,
    zero_points_ptr,
    x_ptr,
    mean_ptr,
    n,
    beta,
    one_minus_beta,
    seed: tl.uint64,
    step,
    stream: tl.uint32,
    offset: tl.int64,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    """Average BLOCKS blocks."""
    first_block, offsets, inside = tile(n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    x = load_as_float32(x_ptr + first + offsets, inside)
    mean = ema_int8(
        codes_ptr,
        scales_ptr,
        zero_points_ptr,
        x,
        n,
        beta,
        one_minus_beta,
        seed,
        step,
        stream,
        offset,
        BLOCKS,
        BLOCK_SIZE,
        COLUMNS,
        SHIFTED,
    )
    store_rounded(mean_ptr + first + offsets, mean, inside)


# 10 + 8/256 bytes an element from float32, 8 + 8/256 from 16 bits.
@triton.jit
def ema_sq_dynamic8_kernel(
    codes_ptr,
    absmax_ptr,
    values_ptr,
    buckets_ptr,
    x_ptr,
    mean_ptr,
    n,
    beta,
    one_minus_beta,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Average BLOCKS blocks."""
    first_block, offsets, inside = tile(n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    x = load_as_float32(x_ptr + first + offsets, inside)
    mean = ema_sq_dynamic8(
        codes_ptr,
        absmax_ptr,
        values_ptr,
        buckets_ptr,
        x,
        n,
        beta,
        one_minus_beta,
        BLOCKS,
        BLOCK_SIZE,
        COLUMNS,
    )
    store_rounded(mean_ptr + first + offsets, mean, inside)
