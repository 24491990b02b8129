"""Adam with both moments in 8-bit blocks, in one pass over memory."""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..._schema.quantize import adam_bound
from ...codebooks import dynamic_buckets, dynamic_map
from ...tuning import BLOCKWISE, BlockwiseConfig
from .._dense import dense, dense_lists
from .adam_scalars import adam_scalars
from .adam_tile import move, normalized
from .blocks import launch_on_blocks, tile
from .lists import Item, grouped, item_of, launch_on_lists, tensor_of
from .memory import load_as_float32
from .moments import ema_int8, ema_sq_dynamic8
from .philox import UNSPECIALIZED, is_shifted, random_arguments, unsigned
from .scalars import scalar_argument, scalar_value
from .step_scalars import scalar_rows, spaced, vector


def adam8_(
    param: Tensor,
    grad: Tensor,
    exp_avg_codes: Tensor,
    exp_avg_scales: Tensor,
    exp_avg_zero_points: Tensor,
    exp_avg_sq_codes: Tensor,
    exp_avg_sq_absmax: Tensor,
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: Tensor,
    seed: int,
    stream: int,
    offset: int = 0,
    block_size: int = 256,
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Tensor | None = None,
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Average both moments, decay and update the parameter; nothing changes where found_inf is not zero."""
    n, device = param.numel(), param.device
    moments = (exp_avg_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_codes, exp_avg_sq_absmax)
    scalars = _scalars(device, step, lr, beta1, beta2, eps, weight_decay, clip, found_inf)
    random = (*random_arguments(seed, step, device), stream, offset)
    tables = (dynamic_map(False, device), dynamic_buckets(False, device))
    with dense(param, *moments) as (W, *blocks):
        launch_on_blocks(
            adam8_kernel,
            (W, grad.contiguous(), *blocks, *tables, n, *scalars, *random),
            n,
            block_size,
            config,
            MAXIMIZE=maximize,
            SHIFTED=is_shifted(offset),
        )


@grouped(adam8_)
def adam8_foreach_(
    param: Sequence[Tensor],
    grad: Sequence[Tensor],
    exp_avg_codes: Sequence[Tensor],
    exp_avg_scales: Sequence[Tensor],
    exp_avg_zero_points: Sequence[Tensor],
    exp_avg_sq_codes: Sequence[Tensor],
    exp_avg_sq_absmax: Sequence[Tensor],
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: Sequence[Tensor],
    seed: int,
    stream: Sequence[int],
    offset: Sequence[int],
    block_size: int = 256,
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Sequence[Tensor | None],
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Update a list of parameters; nothing changes where found_inf is not zero."""
    device = param[0].device
    moments = (exp_avg_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_codes, exp_avg_sq_absmax)
    betas, steps = {"beta1": beta1, "beta2": beta2}, vector(step, device)
    scalars = scalar_rows(steps, found_inf, lr, **betas, weight_decay=weight_decay)
    grads = [item.contiguous() for item in grad]
    with dense_lists(param, *moments) as (params, *blocks):
        columns = zip(params, grads, *blocks, scalars.unbind(), spaced(steps), strict=True)
        items = [Item(each[0].numel(), each, *at) for each, *at in zip(columns, stream, offset, strict=True)]
        tables = (dynamic_map(False, device), dynamic_buckets(False, device))
        arguments = (*tables, *_numbers(**betas, eps=eps, clip=clip), unsigned(seed))
        launch_on_lists(adam8_list_kernel, items, arguments, block_size, config, MAXIMIZE=maximize)


def _scalars(
    device: torch.device,
    step: Tensor,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    clip: float | None,
    found_inf: Tensor | None,
) -> tuple[Any, ...]:
    """Return the kernel's arguments from correction1 to found_inf."""
    return (
        *adam_scalars(step, lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, device=device),
        *_numbers(beta1=beta1, beta2=beta2, eps=eps, clip=clip),
        0.0 if found_inf is None else scalar_argument(found_inf, device),
    )


def _numbers(*, beta1: float, beta2: float, eps: float, clip: float | None) -> tuple[float, ...]:
    """Return the kernel's arguments from beta1 to limit."""
    limit = adam_bound(beta1, beta2) if clip is None else clip
    return (beta1, 1 - beta1, beta2, 1 - beta2, eps, limit)


# 16 + 18/256 bytes an element for a float32 parameter and gradient, 10 + 18/256 for 16 bits. Bound by
# instructions: square root and division are correctly rounded.
@triton.jit(do_not_specialize=UNSPECIALIZED)
def adam8_kernel(
    param_ptr,
    grad_ptr,
    m_codes_ptr,
    m_scales_ptr,
    m_zero_points_ptr,
    v_codes_ptr,
    v_absmax_ptr,
    values_ptr,
    buckets_ptr,
    n,
    correction1,
    correction2,
    decay,
    lr,
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    eps,
    limit,
    found_inf,
    seed: tl.uint64,
    step,
    stream: tl.uint32,
    offset: tl.int64,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    MAXIMIZE: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    """Update BLOCKS blocks."""
    program = tl.program_id(0)
    _update(
        *(param_ptr, grad_ptr, m_codes_ptr, m_scales_ptr, m_zero_points_ptr, v_codes_ptr, v_absmax_ptr),
        *(values_ptr, buckets_ptr, program, n, correction1, correction2, decay, lr),
        *(beta1, one_minus_beta1, beta2, one_minus_beta2, eps, limit, found_inf, seed, step, stream, offset),
        *(BLOCKS, BLOCK_SIZE, COLUMNS, MAXIMIZE, SHIFTED),
    )


@triton.jit(do_not_specialize=UNSPECIALIZED)
def adam8_list_kernel(
    table_ptr,
    items,
    values_ptr,
    buckets_ptr,
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    eps,
    limit,
    seed: tl.uint64,
    TYPES: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    MAXIMIZE: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    """Update BLOCKS blocks of an item."""
    row, program, n, stream, offset = item_of(table_ptr, items, 9, ALIGNED)
    scalars_ptr = tensor_of(row, 7, TYPES, ALIGNED)
    correction1, correction2, decay, lr = scalars_ptr, scalars_ptr + 1, scalars_ptr + 2, scalars_ptr + 3
    found_inf, step = scalars_ptr + 4, tensor_of(row, 8, TYPES, ALIGNED)
    _update(
        tensor_of(row, 0, TYPES, ALIGNED),
        tensor_of(row, 1, TYPES, ALIGNED),
        tensor_of(row, 2, TYPES, ALIGNED),
        tensor_of(row, 3, TYPES, ALIGNED),
        tensor_of(row, 4, TYPES, ALIGNED),
        tensor_of(row, 5, TYPES, ALIGNED),
        tensor_of(row, 6, TYPES, ALIGNED),
        *(values_ptr, buckets_ptr, program, n, correction1, correction2, decay, lr),
        *(beta1, one_minus_beta1, beta2, one_minus_beta2, eps, limit, found_inf, seed, step, stream, offset),
        *(BLOCKS, BLOCK_SIZE, COLUMNS, MAXIMIZE, SHIFTED),
    )


@triton.jit
def _update(
    param_ptr,
    grad_ptr,
    m_codes_ptr,
    m_scales_ptr,
    m_zero_points_ptr,
    v_codes_ptr,
    v_absmax_ptr,
    values_ptr,
    buckets_ptr,
    program,
    n,
    correction1,
    correction2,
    decay,
    lr,
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    eps,
    limit,
    found_inf,
    seed,
    step,
    stream,
    offset,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    MAXIMIZE: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    if scalar_value(found_inf) != 0:
        return
    first_block, offsets, inside = tile(program, n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    g = load_as_float32(grad_ptr + first + offsets, inside)
    if MAXIMIZE:
        g = -g
    m = ema_int8(
        *(m_codes_ptr, m_scales_ptr, m_zero_points_ptr, g, program, n, beta1, one_minus_beta1),
        *(seed, step, stream, offset, BLOCKS, BLOCK_SIZE, COLUMNS, SHIFTED),
    )
    v = ema_sq_dynamic8(
        *(v_codes_ptr, v_absmax_ptr, values_ptr, buckets_ptr, g, program, n),
        *(beta2, one_minus_beta2, BLOCKS, BLOCK_SIZE, COLUMNS),
    )
    N = normalized(m * scalar_value(correction1), v * scalar_value(correction2), eps, limit, True)
    move(param_ptr + first + offsets, N, inside, scalar_value(decay), scalar_value(lr))
