"""Adam in a rotated basis with 8-bit moments on Apple GPUs: products around a pass over the blocks."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..._schema.quantize import adam_bound
from ...codebooks import dynamic_map
from .._dense import dense
from ._adam import update_scalars, weights
from ._blocks import NAMES, RandomStream, bound_step, launch_over_blocks
from ._codebook import dynamic_buckets
from .adam8 import adam8_
from .kron_rotate import last_product, multiply
from .weight_update import update_by_product


def kron_adam8_(
    param: Tensor,
    grad: Tensor,
    exp_avg_codes: Tensor,
    exp_avg_scales: Tensor,
    exp_avg_zero_points: Tensor,
    exp_avg_sq_codes: Tensor,
    exp_avg_sq_absmax: Tensor,
    Q_L: Tensor | None,
    Q_R: Tensor | None,
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
    exp_avg_basis: str = "rotated",
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> None:
    """Rotate, average both moments, rotate back, decay and update; nothing changes where found_inf is not zero."""
    moments = exp_avg_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_codes, exp_avg_sq_absmax
    if Q_L is None and Q_R is None:
        adam8_(
            param,
            grad,
            *moments,
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
            step=step,
            seed=seed,
            stream=stream,
            offset=offset,
            block_size=block_size,
            clip=clip,
            maximize=maximize,
            found_inf=found_inf,
        )
        return
    if not param.numel():
        return
    launch = partial(launch_over_blocks, "kron_adam8", block_size=block_size)
    draws: dict[str, Any] = {"random": RandomStream(seed, stream, offset), "flags": (maximize,)}
    limit, device = adam_bound(beta1, beta2) if clip is None else clip, param.device
    numbers = weights(beta1, beta2, eps, limit)
    update = update_scalars(device, lr, found_inf, weight_decay, step=step, betas=(beta1, beta2))
    taken, table, buckets = (
        bound_step(step, device),
        dynamic_map(False, device),
        dynamic_buckets(False, device),
    )
    with dense(param, *moments) as (W, m_codes, scales, zero_points, v_codes, absmax):
        N = _rotated(grad, Q_L, Q_R)
        if exp_avg_basis == "rotated":
            blocks = scales, zero_points, absmax
            launch(
                "direction8", (N, m_codes, v_codes), blocks, numbers, update, taken, table, buckets, **draws
            )
        else:
            rotated, m = N, torch.empty_like(N)
            name, elements = f"first_moment8_{NAMES[grad.dtype]}", (grad.contiguous(), m, m_codes)
            launch(name, elements, (scales, zero_points), numbers, update, taken, **draws)
            N = _rotated(m, Q_L, Q_R)
            launch("second_moment8", (rotated, N, v_codes), (absmax,), numbers, update, table, buckets)
        update_by_product(W, *last_product(N, Q_L, Q_R, inverse=True), update)


def _rotated(X: Tensor, Q_L: Tensor | None, Q_R: Tensor | None) -> Tensor:
    out = torch.empty(X.shape, dtype=torch.float32, device=X.device)
    multiply(*last_product(X, Q_L, Q_R), out)
    return out
