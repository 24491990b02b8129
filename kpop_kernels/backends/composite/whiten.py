"""Whitening, and Kronecker factors of what the other side has whitened, in aten."""

from torch import Tensor

from ..._schema import compute_dtype
from .gram import gram_ema_


def whiten(G: Tensor, P_L: Tensor | None, P_R: Tensor | None, *, out: Tensor) -> None:
    """Write P_L G P_R to out."""
    out.copy_(_product(G.to(compute_dtype(G)), P_L, P_R))


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
    dtype = compute_dtype(param)
    U = _product(G.to(dtype), P_L, P_R)
    lr = lr.to(dtype)
    signed = -scale if maximize else scale
    new = param.to(dtype) * (1 - lr * weight_decay) - (lr * signed) * U
    param.copy_(new if found_inf is None else new.to(param.dtype).where(found_inf == 0, param))


def kl_gram_ema_(
    S_a: Tensor, S_b: Tensor, G: Tensor, P_a: Tensor | None, P_b: Tensor | None, *, beta: float, eps: float
) -> None:
    """Update S_a with (G P_b)(G P_b)ᵀ / n and S_b with (P_a G)ᵀ(P_a G) / m, and add eps to their diagonals."""
    m, n = G.shape[-2:]
    G = G.to(compute_dtype(S_a))
    halves = (S_a, _product(G, None, P_b), "left", n), (S_b, _product(G, P_a, None), "right", m)
    for S, X, side, count in halves:
        gram_ema_(S, X, beta=beta, alpha=(1 - beta) / max(count, 1), side=side)
        S.diagonal(dim1=-2, dim2=-1).add_(eps)


def _product(G: Tensor, P_L: Tensor | None, P_R: Tensor | None) -> Tensor:
    if P_L is not None:
        G = P_L.to(G.dtype) @ G
    return G if P_R is None else G @ P_R.to(G.dtype)
