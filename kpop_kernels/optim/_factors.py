"""Kronecker factors and their eigenbases."""

from typing import Any, Literal

import torch
from torch import Tensor

from ..ops import gram_ema_
from ._nonfinite import undone_if


def eigenbasis(S: Tensor, old: Tensor | None, *, descending: bool = True) -> Tensor | None:
    """Return the orthonormal eigenvectors of symmetric matrices, or None if they cannot be had.

    The matrix is scaled to a mean diagonal of 1 and shifted by 1e-7 first: eigenvectors do not change, and
    factors of any magnitude are decomposed alike. Each vector's sign is chosen to agree with the old basis.
    float32 failures are tried again in float64 on the CPU.

    Args:
        S: (..., n, n), symmetric.
        old: Basis to agree with.
        descending: Order by falling eigenvalue; otherwise rising, as LAPACK returns them.
    """
    scaled = _scaled(S, shift=1e-7)
    Q = None if scaled is None else _eigenvectors(scaled)
    if Q is None:
        return None
    if descending:
        Q = Q.flip(-1)
    return (Q if old is None else aligned(Q, old)).contiguous()


def power_step(S: Tensor, Q: Tensor) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Return one step of orthogonal iteration from a basis, and the order its columns were taken in.

    Columns are ordered by falling qᵀSq first, so that the QR factorization of SQ gives the larger eigenvalues
    the earlier columns. Returns None twice if the step cannot be had.

    Args:
        S: (..., n, n), symmetric.
        Q: (..., n, n), orthonormal columns.
    """
    scaled = _scaled(S, shift=0.0)
    if scaled is None:
        return None, None
    SQ = scaled @ Q
    order = (Q * SQ).sum(-2).argsort(dim=-1, descending=True, stable=True)
    columns = order[..., None, :].expand_as(Q)
    new = torch.linalg.qr(SQ.gather(-1, columns)).Q
    if not bool(torch.isfinite(new).all()):
        return None, None
    return aligned(new, Q.gather(-1, columns)).contiguous(), order


def _scaled(S: Tensor, *, shift: float) -> Tensor | None:
    """Return matrices of mean diagonal 1, shifted, or None where there is none: zero, NaN or Inf."""
    scale = S.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    if not bool((torch.isfinite(scale) & (scale > 0)).all()):
        return None
    scaled = S / scale
    scaled.diagonal(dim1=-2, dim2=-1).add_(shift)
    return scaled


def aligned(Q: Tensor, old: Tensor) -> Tensor:
    """Return the basis with signs that agree with the old one."""
    agreement = (Q * old).sum(-2, keepdim=True)
    return torch.where(agreement < 0, -Q, Q)


def _eigenvectors(S: Tensor) -> Tensor | None:
    for attempt in (S, S.to("cpu", torch.float64)):
        try:
            Q = torch.linalg.eigh(attempt).eigenvectors
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            continue
        if bool(torch.isfinite(Q).all()):
            return Q.to(S)
    return None


def accumulate(
    factor: Tensor, scatter: Tensor, *, beta: float, rows: int | None, found_inf: Tensor | None
) -> None:
    """Update an exponential average of second moments, in place: S ← beta·S + (1 - beta)·M.

    Args:
        factor: S, symmetric.
        scatter: Σ x xᵀ over some rows, symmetric positive semidefinite. Left out if zero or not finite.
        beta: Decay.
        rows: M is the scatter divided by this; None divides it by its trace, so that the average does not depend
            on the scale of the loss.
        found_inf: If it is not None and not zero, nothing is changed.
    """
    trace = scatter.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    usable = torch.isfinite(trace) & (trace > 0)
    if found_inf is not None:
        usable &= found_inf == 0
    share = torch.where(usable, torch.full_like(trace, 1 - beta), 0.0)
    weight = torch.where(usable, share / (trace if rows is None else rows), 0.0)
    factor.mul_(1 - share).addcmul_(torch.where(usable, scatter, 0.0), weight)


def accumulate_gradient(
    state: dict[str, Any], G: Tensor, *, beta: float, normalize: bool, found_inf: Tensor | None
) -> None:
    """Feed the factors of a state with G Gᵀ and GᵀG: S ← beta·S + (1 - beta)·M.

    Args:
        state: Holds "L", "R", either or neither.
        G: Gradient, (..., m, n).
        beta: Decay.
        normalize: Divide both by their trace.
        found_inf: If it is not None and not zero, nothing is changed.
    """
    if normalize:
        largest = G.abs().amax((-2, -1), keepdim=True)
        G = torch.where(largest > 0, G / largest, G)
        norm = torch.linalg.matrix_norm(G, keepdim=True)
        G = torch.where(norm > 0, G / norm, G)
    sides: tuple[tuple[Literal["left", "right"], str], ...] = (("left", "L"), ("right", "R"))
    for side, key in sides:
        if key in state:
            average_gram_(state[key], G, beta=beta, alpha=1 - beta, side=side, found_inf=found_inf)


def average_gram_(
    S: Tensor,
    X: Tensor,
    *,
    beta: float,
    alpha: float,
    side: Literal["left", "right"],
    found_inf: Tensor | None,
) -> None:
    """S ← beta·S + alpha·X Xᵀ (or XᵀX), unless found_inf is not None and not zero."""
    with undone_if(found_inf, S) as (target,):
        gram_ema_(target, X, beta=beta, alpha=alpha, side=side)
