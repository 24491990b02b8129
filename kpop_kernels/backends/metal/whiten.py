"""Whitening by both factors, and what one factor has whitened in the other's covariance, on Apple GPUs."""

import torch
from torch import Tensor

from .._dense import dense
from ._adam import update_scalars
from ._blocks import NAMES
from .gram import gram_ema_
from .kron_rotate import kron_rotate, last_product, multiply
from .weight_update import update_by, update_by_product


def whiten(G: Tensor, P_L: Tensor | None, P_R: Tensor | None, *, out: Tensor) -> None:
    """Write P_L G P_R to out."""
    kron_rotate(G, P_L, _transposed(P_R), inverse=True, out=out)


def whiten_update_(
    param: Tensor,
    G: Tensor,
    P_L: Tensor | None,
    P_R: Tensor | None,
    *,
    lr: Tensor,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> None:
    """Update param ← (1 - lr·weight_decay)·param - lr·scale·P_L G P_R."""
    if not param.numel():
        return
    signed = -scale if maximize else scale
    numbers = update_scalars(param.device, lr, found_inf, weight_decay, scale=signed)
    # The product that ends in the update has float32 factors, a product before it any.
    if (P_L is None) != (P_R is None) or G.dtype not in NAMES:
        G = G.to(torch.float32)
    with dense(param) as (W,):
        if P_L is None and P_R is None:
            update_by(W, G.contiguous(), numbers)
        else:
            update_by_product(W, *last_product(G, P_L, _transposed(P_R), inverse=True), numbers)


def kl_gram_ema_(
    S_a: Tensor, S_b: Tensor, G: Tensor, P_a: Tensor | None, P_b: Tensor | None, *, beta: float, eps: float
) -> None:
    """Update S_a with (G P_b)(G P_b)ᵀ / n and S_b with (P_a G)ᵀ(P_a G) / m, and add eps to their diagonals."""
    m, n = G.shape[-2:]
    halves = (S_a, _half(G, None, P_b), "left", n), (S_b, _half(G, P_a, None), "right", m)
    for S, X, side, count in halves:
        gram_ema_(S, X, beta=beta, alpha=(1 - beta) / max(count, 1), side=side)
        S.diagonal(dim1=-2, dim2=-1).add_(eps)


def _half(G: Tensor, P_L: Tensor | None, P_R: Tensor | None) -> Tensor:
    """Return P_L G or G P_R in float32, or G itself without a factor."""
    if P_L is None and P_R is None:
        return G
    X = torch.empty(G.shape, dtype=torch.float32, device=G.device)
    if G.numel():
        multiply(*last_product(G, P_L, _transposed(P_R), inverse=True), X)
    return X


def _transposed(P: Tensor | None) -> Tensor | None:
    """Return what a rotation back needs to multiply by P from the right."""
    return None if P is None else P.mT
