"""Whitening, and Kronecker factors of what the other side has whitened (KL-Shampoo)."""

import torch
from torch import Tensor


def whiten(G: Tensor, P_L: Tensor | None, P_R: Tensor | None) -> Tensor:
    """Return P_L G P_R in float64; None is the identity."""
    G = G.to(torch.float64)
    if P_L is not None:
        G = torch.einsum("...ij,...jk->...ik", P_L.to(torch.float64), G)
    if P_R is not None:
        G = torch.einsum("...ij,...jk->...ik", G, P_R.to(torch.float64))
    return G


def whiten_update(
    W: Tensor,
    G: Tensor,
    P_L: Tensor | None,
    P_R: Tensor | None,
    *,
    lr: float,
    weight_decay: float,
    scale: float,
) -> Tensor:
    """Return (1 - lr·weight_decay) W - lr·scale·P_L G P_R in float64."""
    return (1 - lr * weight_decay) * W.to(torch.float64) - lr * scale * whiten(G, P_L, P_R)


def kl_gram_ema(
    S_a: Tensor, S_b: Tensor, G: Tensor, P_a: Tensor | None, P_b: Tensor | None, *, beta: float, eps: float
) -> tuple[Tensor, Tensor]:
    """Return βS_a + (1-β)/n (G P_b)(G P_b)ᵀ + eps·I and βS_b + (1-β)/m (P_a G)ᵀ(P_a G) + eps·I in float64.

    These are the averages of the gradients of the KL divergence between the gradient's covariance and S_a ⊗ S_b.
    """
    m, n = G.shape[-2:]
    right, left = whiten(G, None, P_b), whiten(G, P_a, None)
    eye_a, eye_b = (torch.eye(size, dtype=torch.float64) for size in (m, n))
    new_a = beta * S_a.to(torch.float64) + (1 - beta) / n * right @ right.mT + eps * eye_a
    new_b = beta * S_b.to(torch.float64) + (1 - beta) / m * left.mT @ left + eps * eye_b
    return (new_a + new_a.mT) / 2, (new_b + new_b.mT) / 2
