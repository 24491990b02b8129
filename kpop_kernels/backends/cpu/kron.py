"""Adam in an eigenbasis: rotations by BLAS, Adam in one C++ pass, the update in the last product."""

import math

import torch
from torch import Tensor

from .._dense import dense
from .native import kernels, threads


def kron_adam_(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    Q_L: Tensor | None,
    Q_R: Tensor | None,
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: Tensor,
    exp_avg_basis: str = "rotated",
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> None:
    """Rotate the gradient, Adam in the eigenbasis, rotate back, decay and update the parameter."""
    if found_inf is not None and found_inf.item():
        return
    original = exp_avg_basis == "original"
    G = grad.to(torch.float32)
    rotated = _rotate(G, Q_L, Q_R)
    ours = rotated is not grad and rotated.is_contiguous()
    N = rotated if ours else rotated.clone(memory_format=torch.contiguous_format)
    t = step.item()
    with dense(exp_avg, exp_avg_sq) as (m, v):
        if original:
            m.mul_(beta1).add_(G, alpha=beta1 - 1 if maximize else 1 - beta1)
        first = _rotate(m, Q_L, Q_R).contiguous() if original else m
        kernels().adam(
            N.data_ptr(),
            first.data_ptr(),
            v.data_ptr(),
            N.numel(),
            beta1=1.0 if original else beta1,
            one_minus_beta1=0.0 if original else 1 - beta1,
            beta2=beta2,
            one_minus_beta2=1 - beta2,
            correction1=1 / _bias_correction(beta1, t),
            correction2=1 / _bias_correction(beta2, t),
            eps=eps,
            sign=-1.0 if maximize else 1.0,
            threads=threads(),
        )
    if clip is not None:
        N.clamp_(-clip, clip)
    _update(param, N, Q_L, Q_R, lr.item(), weight_decay)


def _rotate(G: Tensor, Q_L: Tensor | None, Q_R: Tensor | None) -> Tensor:
    if Q_L is not None:
        G = Q_L.mT @ G
    return G if Q_R is None else G @ Q_R


def _update(
    param: Tensor, N: Tensor, Q_L: Tensor | None, Q_R: Tensor | None, lr: float, weight_decay: float
) -> None:
    """Decay the parameter and subtract lr·Q_L N Q_Rᵀ; the subtraction rides on the last product if it can."""
    decay = 1 - lr * weight_decay
    if Q_L is not None:
        N = Q_L @ N
    if Q_R is not None and param.ndim == 2 and param.dtype == torch.float32 and param.is_contiguous():
        torch.addmm(param, N, Q_R.mT, beta=decay, alpha=-lr, out=param)
        return
    if Q_R is not None:
        N = N @ Q_R.mT
    param.copy_(param.to(torch.float32).mul(decay).sub_(N, alpha=lr))


def _bias_correction(beta: float, step: float) -> float:
    return -math.expm1(step * math.log(beta)) if beta else 1.0
