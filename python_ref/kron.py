"""Kronecker rotations and Adam in a rotated basis.

A matrix basis Q_L on the left and Q_R on the right is the orthogonal matrix Q_L ⊗ Q_R acting on the row-major
vectorized gradient: vec(Q_Lᵀ G Q_R) = (Q_L ⊗ Q_R)ᵀ vec(G).
"""

from typing import NamedTuple

import torch
from torch import Tensor


class AdamState(NamedTuple):
    """What one step leaves behind."""

    param: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor


def rotate(G: Tensor, Q_L: Tensor | None, Q_R: Tensor | None, *, inverse: bool = False) -> Tensor:
    """Return Q_Lᵀ G Q_R, or Q_L G Q_Rᵀ for the inverse, in float64; None is the identity."""
    G = G.to(torch.float64)
    if Q_L is not None:
        G = torch.einsum("...ij,...jk->...ik" if inverse else "...ji,...jk->...ik", Q_L.to(torch.float64), G)
    if Q_R is not None:
        G = torch.einsum("...ij,...kj->...ik" if inverse else "...ij,...jk->...ik", G, Q_R.to(torch.float64))
    return G


def adam(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    Q_L: Tensor | None,
    Q_R: Tensor | None,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
    exp_avg_basis: str = "rotated",
    clip: float = torch.inf,
    maximize: bool = False,
) -> AdamState:
    """Return parameter and moments after one step of Adam in the basis, in float64.

    G' = Q_Lᵀ G Q_R;  m = β₁m + (1-β₁)G';  v = β₂v + (1-β₂)G'²;  N = m̂ / (√v̂ + eps) with bias-corrected m̂, v̂,
    limited to ±clip;  W = (1 - lr·weight_decay) W - lr·Q_L N Q_Rᵀ. In the original basis m = β₁m + (1-β₁)G, and
    Q_Lᵀ m Q_R takes its place in N.
    """
    param, m, v = (t.to(torch.float64) for t in (param, exp_avg, exp_avg_sq))
    G = -grad.to(torch.float64) if maximize else grad.to(torch.float64)
    rotated = rotate(G, Q_L, Q_R)
    original = exp_avg_basis == "original"
    m = beta1 * m + (1 - beta1) * (G if original else rotated)
    v = beta2 * v + (1 - beta2) * rotated**2
    N = rotate(m, Q_L, Q_R) if original else m
    N = (N / (1 - beta1**step)) / (torch.sqrt(v / (1 - beta2**step)) + eps)
    N = N.clamp(-clip, clip)
    param = (1 - lr * weight_decay) * param - lr * rotate(N, Q_L, Q_R, inverse=True)
    return AdamState(param, m, v)


def rebase_moments(
    exp_avg: Tensor, exp_avg_sq: Tensor, P_L: Tensor | None, P_R: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return P_L m P_Rᵀ and (P_L∘P_L) v (P_R∘P_R)ᵀ in float64, for P = Q_newᵀ Q_old on each side.

    The second is the variance of the rotated gradient if the old coordinates were independent.
    """
    squares = [None if P is None else P.to(torch.float64) ** 2 for P in (P_L, P_R)]
    return rotate(exp_avg, P_L, P_R, inverse=True), rotate(exp_avg_sq, *squares, inverse=True)
