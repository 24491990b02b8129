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
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> None:
    """Rotate the gradient, Adam in the eigenbasis, rotate back, decay and update the parameter."""
    if found_inf is not None and found_inf.item():
        return
    G = grad.to(torch.float32)
    if Q_L is not None:
        G = Q_L.mT @ G
    if Q_R is not None:
        G = G @ Q_R
    if G is grad or not G.is_contiguous():
        G = G.clone(memory_format=torch.contiguous_format)
    t = step.item()
    with dense(exp_avg, exp_avg_sq) as (m, v):
        kernels().adam(
            G.data_ptr(),
            m.data_ptr(),
            v.data_ptr(),
            G.numel(),
            beta1=beta1,
            one_minus_beta1=1 - beta1,
            beta2=beta2,
            one_minus_beta2=1 - beta2,
            correction1=1 / _bias_correction(beta1, t),
            correction2=1 / _bias_correction(beta2, t),
            eps=eps,
            sign=-1.0 if maximize else 1.0,
            threads=threads(),
        )
    _update(param, G, Q_L, Q_R, lr.item(), weight_decay)


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
