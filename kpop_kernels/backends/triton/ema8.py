"""Moving averages kept in 8-bit blocks, each in one pass over memory."""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from ...codebooks import dynamic_buckets, dynamic_map
from ...tuning import BLOCKWISE, BlockwiseConfig
from .._dense import dense, dense_lists
from .blocks import launch_on_blocks, tile
from .lists import Item, grouped, item_of, launch_on_lists, tensor_of
from .memory import load_as_float32, store_rounded
from .moments import ema_int8, ema_sq_dynamic8
from .philox import UNSPECIALIZED, is_shifted, random_arguments, unsigned
from .step_scalars import spaced, vector


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
    random = (*random_arguments(seed, step, x.device), stream, offset)
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


@grouped(ema_int8_)
def ema_int8_foreach_(
    codes: Sequence[Tensor],
    scales: Sequence[Tensor],
    zero_points: Sequence[Tensor],
    x: Sequence[Tensor],
    *,
    beta: float,
    seed: int,
    step: Sequence[Tensor],
    stream: Sequence[int],
    offset: Sequence[int],
    block_size: int = 256,
    out: Sequence[Tensor],
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Write m = beta·m + (1 - beta)·x of a list to out and round it stochastically into the blocks."""
    values = [item.contiguous() for item in x]
    with dense_lists(codes, scales, zero_points, out) as (*blocks, means):
        columns = zip(*blocks, values, means, spaced(vector(step, x[0].device)), strict=True)
        items = [Item(each[0].numel(), each, *at) for each, *at in zip(columns, stream, offset, strict=True)]
        arguments = (beta, 1 - beta, unsigned(seed))
        launch_on_lists(ema_int8_list_kernel, items, arguments, block_size, config)


@grouped(ema_sq_dynamic8_)
def ema_sq_dynamic8_foreach_(
    codes: Sequence[Tensor],
    absmax: Sequence[Tensor],
    x: Sequence[Tensor],
    *,
    beta: float,
    block_size: int = 256,
    out: Sequence[Tensor],
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Write v = beta·v + ((1 - beta)·x)·x of a list to out and its nearest codes into the blocks."""
    device = x[0].device
    values = [item.contiguous() for item in x]
    with dense_lists(codes, absmax, out) as (*blocks, means):
        items = [Item(each[0].numel(), each) for each in zip(*blocks, values, means, strict=True)]
        arguments = (dynamic_map(False, device), dynamic_buckets(False, device), beta, 1 - beta)
        launch_on_lists(ema_sq_dynamic8_list_kernel, items, arguments, block_size, config)


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
    program = tl.program_id(0)
    _average(
        *(codes_ptr, scales_ptr, zero_points_ptr, x_ptr, mean_ptr, program, n),
        *(beta, one_minus_beta, seed, step, stream, offset, BLOCKS, BLOCK_SIZE, COLUMNS, SHIFTED),
    )


@triton.jit(do_not_specialize=UNSPECIALIZED)
def ema_int8_list_kernel(
    table_ptr,
    items,
    beta,
    one_minus_beta,
    seed: tl.uint64,
    TYPES: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    """Average BLOCKS blocks of an item."""
    row, program, n, stream, offset = item_of(table_ptr, items, 6, ALIGNED)
    step = tensor_of(row, 5, TYPES, ALIGNED)
    _average(
        tensor_of(row, 0, TYPES, ALIGNED),
        tensor_of(row, 1, TYPES, ALIGNED),
        tensor_of(row, 2, TYPES, ALIGNED),
        tensor_of(row, 3, TYPES, ALIGNED),
        tensor_of(row, 4, TYPES, ALIGNED),
        *(program, n, beta, one_minus_beta, seed, step, stream, offset),
        *(BLOCKS, BLOCK_SIZE, COLUMNS, SHIFTED),
    )


@triton.jit
def _average(
    codes_ptr,
    scales_ptr,
    zero_points_ptr,
    x_ptr,
    mean_ptr,
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
    first_block, offsets, inside = tile(program, n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    x = load_as_float32(x_ptr + first + offsets, inside)
    mean = ema_int8(
        *(codes_ptr, scales_ptr, zero_points_ptr, x, program, n, beta, one_minus_beta),
        *(seed, step, stream, offset, BLOCKS, BLOCK_SIZE, COLUMNS, SHIFTED),
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
    mean, first, offsets, inside = _average_square(
        *(codes_ptr, absmax_ptr, values_ptr, buckets_ptr, x_ptr, tl.program_id(0), n),
        *(beta, one_minus_beta, BLOCKS, BLOCK_SIZE, COLUMNS),
    )
    store_rounded(mean_ptr + first + offsets, mean, inside)


@triton.jit
def ema_sq_dynamic8_list_kernel(
    table_ptr,
    items,
    values_ptr,
    buckets_ptr,
    beta,
    one_minus_beta,
    TYPES: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Average BLOCKS blocks of an item."""
    row, program, n, _, _ = item_of(table_ptr, items, 4, ALIGNED)
    mean, first, offsets, inside = _average_square(
        tensor_of(row, 0, TYPES, ALIGNED),
        tensor_of(row, 1, TYPES, ALIGNED),
        *(values_ptr, buckets_ptr),
        tensor_of(row, 2, TYPES, ALIGNED),
        *(program, n, beta, one_minus_beta, BLOCKS, BLOCK_SIZE, COLUMNS),
    )
    store_rounded(tensor_of(row, 3, TYPES, ALIGNED) + first + offsets, mean, inside)


@triton.jit
def _average_square(
    codes_ptr,
    absmax_ptr,
    values_ptr,
    buckets_ptr,
    x_ptr,
    program,
    n,
    beta,
    one_minus_beta,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    first_block, offsets, inside = tile(program, n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    x = load_as_float32(x_ptr + first + offsets, inside)
    mean = ema_sq_dynamic8(
        *(codes_ptr, absmax_ptr, values_ptr, buckets_ptr, x, program, n),
        *(beta, one_minus_beta, BLOCKS, BLOCK_SIZE, COLUMNS),
    )
    return mean, first, offsets, inside
