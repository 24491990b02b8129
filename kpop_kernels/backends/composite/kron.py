"""Kronecker rotations and Adam in an eigenbasis, in aten."""

import math

import torch
from torch import Tensor

from ..._schema import compute_dtype


def kron_rotate(
    G: Tensor, Q_L: Tensor | None, Q_R: Tensor | None, *, inverse: bool = False, out: Tensor
) -> None:
    """Write Q_Lᵀ G Q_R, or Q_L G Q_Rᵀ, to out."""
    out.copy_(rotate(G.to(compute_dtype(G)), Q_L, Q_R, inverse=inverse))


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
    dtype, original = exp_avg.dtype, exp_avg_basis == "original"
    G = -grad.to(dtype) if maximize else grad.to(dtype)
    rotated = rotate(G, Q_L, Q_R)
    m = exp_avg * beta1 + (G if original else rotated) * (1 - beta1)
    v = exp_avg_sq * beta2 + rotated.square() * (1 - beta2)
    N = (rotate(m, Q_L, Q_R) if original else m) / _bias_correction(beta1, step, dtype)
    N = N / ((v / _bias_correction(beta2, step, dtype)).sqrt() + eps)
    update = rotate(N if clip is None else N.clamp(-clip, clip), Q_L, Q_R, inverse=True)
    lr = lr.to(dtype)
    new = param.to(dtype) * (1 - lr * weight_decay) - lr * update
    for old, value in ((param, new), (exp_avg, m), (exp_avg_sq, v)):
        old.copy_(value if found_inf is None else value.to(old.dtype).where(found_inf == 0, old))


def rebase_moments_(exp_avg: Tensor, exp_avg_sq: Tensor, P_L: Tensor | None, P_R: Tensor | None) -> None:
    """Move the moments into a refreshed basis: P_L m P_Rᵀ and (P_L∘P_L) v (P_R∘P_R)ᵀ."""
    dtype = compute_dtype(exp_avg)
    squares = (None if P is None else P.to(dtype).square() for P in (P_L, P_R))
    exp_avg.copy_(rotate(exp_avg.to(dtype), P_L, P_R, inverse=True))
    exp_avg_sq.copy_(rotate(exp_avg_sq.to(dtype), *squares, inverse=True))


def rotate(G: Tensor, Q_L: Tensor | None, Q_R: Tensor | None, *, inverse: bool = False) -> Tensor:
    """Return Q_Lᵀ G Q_R, or Q_L G Q_Rᵀ, in G's dtype."""
    if Q_L is not None:
        Q_L = Q_L.to(G.dtype)
        G = (Q_L if inverse else Q_L.mT) @ G
    if Q_R is not None:
        Q_R = Q_R.to(G.dtype)
        G = G @ (Q_R.mT if inverse else Q_R)
    return G


def _bias_correction(beta: float, step: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 1 - betaᵗ without cancellation, as a 0-d tensor on step's device."""
    return -torch.expm1(step.to(dtype) * math.log(beta)) if beta else torch.ones_like(step, dtype=dtype)
