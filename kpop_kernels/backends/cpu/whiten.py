"""Whitening by both factors, the parameter moved along it, and the factors of what the other side has whitened."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .native import kernels, threads
from .products import address, batch, is_short, product, single, two_sided, write_back
from .symmetric import syrk


def whiten_foreach(
    G: Sequence[Tensor], P_L: Sequence[Tensor | None], P_R: Sequence[Tensor | None], *, out: Sequence[Tensor]
) -> None:
    """Write P_L G P_R to out."""
    two_sided(G, P_L, P_R, out=out)


def whiten_update_foreach_(
    param: Sequence[Tensor],
    G: Sequence[Tensor],
    P_L: Sequence[Tensor | None],
    P_R: Sequence[Tensor | None],
    *,
    lr: Tensor,
    weight_decay: float = 0.0,
    scale: Sequence[float],
    maximize: bool = False,
    found_inf: Sequence[Tensor | None] | None = None,
) -> None:
    """Update param ← (1 - lr·weight_decay)·param - lr·scale·P_L G P_R, in one call what needs no BLAS."""
    rate = lr.item()
    signed = rate if maximize else -rate
    found = found_inf or [None] * len(param)
    taken = [i for i, inf in enumerate(found) if inf is None or not inf.item()]
    two_sided(
        [G[i] for i in taken],
        [P_L[i] for i in taken],
        [P_R[i] for i in taken],
        out=[param[i] for i in taken],
        keep=1 - rate * weight_decay,
        weight=[signed * scale[i] for i in taken],
    )


def kl_gram_ema_foreach_(
    S_a: Sequence[Tensor],
    S_b: Sequence[Tensor],
    G: Sequence[Tensor],
    P_a: Sequence[Tensor | None],
    P_b: Sequence[Tensor | None],
    *,
    beta: float,
    eps: float,
) -> None:
    """Update S_a with (G P_b)(G P_b)ᵀ / n and S_b with (P_a G)ᵀ(P_a G) / m, and add eps to their diagonals."""
    batches: list[Any] = []
    read: list[Tensor | None] = []
    written: list[tuple[Tensor, Tensor]] = []
    for a, b, X, L, R in zip(S_a, S_b, G, P_a, P_b, strict=True):
        if not X.numel() or not is_short(X):
            _with_blas(a, X, None, R, beta=beta, eps=eps, side="left")
            _with_blas(b, X, L, None, beta=beta, eps=eps, side="right")
            continue
        X = single(X)
        count, m, n, each_left, each_right = batch(X, L, R)
        for S, P, each, of_columns in ((a, R, each_right, False), (b, L, each_left, True)):
            new, P = single(S), None if P is None else single(P)
            batches.append((*map(address, (new, X, P)), count, m, n, each, of_columns))
            read += (X, P)
            written.append((S, new))
    if batches:
        kernels().kl_factors(batches, beta=beta, one_minus_beta=1 - beta, eps=eps, threads=threads())
    write_back(written)


def _with_blas(
    S: Tensor, G: Tensor, L: Tensor | None, R: Tensor | None, *, beta: float, eps: float, side: str
) -> None:
    """Update one factor: the whitened gradient by BLAS, half of the symmetric product by our own."""
    depth = G.shape[-1 if side == "left" else -2]
    syrk(product(L, G, R), C=S, alpha=(1 - beta) / max(depth, 1), beta=beta, side=side, out=S)
    S.diagonal(dim1=-2, dim2=-1).add_(eps)
