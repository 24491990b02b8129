"""Adam with both moments in 8-bit blocks, in one C++ pass."""

import math

from torch import Tensor

from ..._native import Adam8Step
from ..._schema.quantize import adam_bound
from .._dense import dense
from .native import FLOATS, kernels, random_stream, threads


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
) -> None:
    """Average both moments, decay and update the parameter; nothing changes if found_inf is not zero."""
    if found_inf is not None and found_inf.item():
        return
    grad = grad.contiguous()
    moments = (exp_avg_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_codes, exp_avg_sq_absmax)
    adam_step = Adam8Step(
        beta1=beta1,
        one_minus_beta1=1 - beta1,
        beta2=beta2,
        one_minus_beta2=1 - beta2,
        correction1=_correction(beta1, step.item()),
        correction2=_correction(beta2, step.item()),
        eps=eps,
        sign=-1.0 if maximize else 1.0,
        lr=lr.item(),
        decay=1 - lr.item() * weight_decay,
        limit=adam_bound(beta1, beta2) if clip is None else clip,
    )
    with dense(param, *moments) as (W, *blocks):
        kernels().adam8(
            W.data_ptr(),
            FLOATS[W.dtype],
            grad.data_ptr(),
            FLOATS[grad.dtype],
            W.numel(),
            *(tensor.data_ptr() for tensor in blocks),
            block_size=block_size,
            step=adam_step,
            random=random_stream(seed, step, stream, offset),
            threads=threads(),
        )


def _correction(beta: float, step: float) -> float:
    """Return 1 / (1 - betaᵗ) without cancellation."""
    return -1 / math.expm1(step * math.log(beta)) if beta else 1.0
