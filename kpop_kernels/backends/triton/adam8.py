"""Adam with both moments in 8-bit blocks, in one pass over memory."""

import triton
import triton.language as tl
from torch import Tensor

from ..._schema.quantize import adam_bound
from ...codebooks import dynamic_buckets, dynamic_map
from ...tuning import BLOCKWISE, BlockwiseConfig
from .._dense import dense
from .adam_scalars import adam_scalars
from .blocks import launch_on_blocks, tile
from .memory import load_as_float32, store_rounded
from .moments import ema_int8, ema_sq_dynamic8
from .philox import UNSPECIALIZED, is_shifted, random_arguments
from .scalars import scalar_argument, scalar_value


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
    scalars = (
        *adam_scalars(step, lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, device=device),
        *(beta1, 1 - beta1, beta2, 1 - beta2, eps),
        adam_bound(beta1, beta2) if clip is None else clip,
        0.0 if found_inf is None else scalar_argument(found_inf, device),
        *random_arguments(seed, step, stream, offset, device),
    )
    tables = (dynamic_map(False, device), dynamic_buckets(False, device))
    with dense(param, *moments) as (W, *blocks):
        launch_on_blocks(
            adam8_kernel,
            (W, grad.contiguous(), *blocks, *tables, n, *scalars),
            n,
            block_size,
            config,
            MAXIMIZE=maximize,
            SHIFTED=is_shifted(offset),
        )


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
    if scalar_value(found_inf) != 0:
        return
    first_block, offsets, inside = tile(n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    g = load_as_float32(grad_ptr + first + offsets, inside)
    if MAXIMIZE:
        g = -g
    m = ema_int8(
        m_codes_ptr,
        m_scales_ptr,
        m_zero_points_ptr,
        g,
        n,
        beta1,
        one_minus_beta1,
        seed,
        step,
        stream,
        offset,
        BLOCKS,
        BLOCK_SIZE,
        COLUMNS,
        SHIFTED,
    )
    v = ema_sq_dynamic8(
        v_codes_ptr,
        v_absmax_ptr,
        values_ptr,
        buckets_ptr,
        g,
        n,
        beta2,
        one_minus_beta2,
        BLOCKS,
        BLOCK_SIZE,
        COLUMNS,
    )
    N = tl.div_rn(m * scalar_value(correction1), tl.sqrt_rn(v * scalar_value(correction2)) + eps)
    # Comparisons keep NaN, which the minimum of two numbers drops.
    N = tl.where(N > limit, limit, N)
    N = tl.where(N < -limit, -limit, N)
    W = load_as_float32(param_ptr + first + offsets, inside)
    store_rounded(param_ptr + first + offsets, W * scalar_value(decay) - scalar_value(lr) * N, inside)
