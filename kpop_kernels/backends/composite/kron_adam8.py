"""Adam in an eigenbasis with both moments in 8-bit blocks, in aten."""

import math

import torch
from torch import Tensor

from ..._schema.quantize import adam_bound
from .ema8 import ema_int8_, ema_sq_dynamic8_
from .kron import rotate


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
    old = (param, exp_avg_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_codes, exp_avg_sq_absmax)
    new = old if found_inf is None else tuple(tensor.clone() for tensor in old)
    original = exp_avg_basis == "original"
    g = grad.to(torch.float32)
    g = -g if maximize else g
    rotated = rotate(g, Q_L, Q_R)
    m, v = torch.empty_like(g), torch.empty_like(g)
    ema_int8_(
        new[1],
        new[2],
        new[3],
        g if original else rotated,
        beta=beta1,
        seed=seed,
        step=step,
        stream=stream,
        offset=offset,
        block_size=block_size,
        out=m,
    )
    ema_sq_dynamic8_(new[4], new[5], rotated, beta=beta2, block_size=block_size, out=v)
    m = (rotate(m, Q_L, Q_R) if original else m).mul_(_correction(beta1, step, param.device))
    denominator = v.mul_(_correction(beta2, step, param.device)).sqrt_().add_(eps)
    limit = adam_bound(beta1, beta2) if clip is None else clip
    update = rotate(m.div_(denominator).clamp_(-limit, limit), Q_L, Q_R, inverse=True)
    lr = lr.to(param.device)
    decay = (1 - lr.to(_precise(param.device)) * weight_decay).to(torch.float32)
    new[0].copy_(param.to(torch.float32).mul(decay) - update * lr.to(torch.float32))
    if found_inf is not None:
        for target, value in zip(old, new, strict=True):
            target.copy_(value.where(found_inf.to(param.device) == 0, target))


def _correction(beta: float, step: Tensor, device: torch.device) -> Tensor:
    """Return 1 / (1 - betaᵗ) in float32, without cancellation."""
    t = step.to(device=device, dtype=_precise(device))
    power = torch.expm1(t * math.log(beta)) if beta else -torch.ones_like(t)
    return (-1 / power).to(torch.float32)


def _precise(device: torch.device) -> torch.dtype:
    """Return the widest dtype of a device."""
    return torch.float32 if device.type == "mps" else torch.float64
