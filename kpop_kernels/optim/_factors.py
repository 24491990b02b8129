"""Kronecker factors and their eigenbases."""

import torch
from torch import Tensor


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
    scale = S.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    if not bool((torch.isfinite(scale) & (scale > 0)).all()):
        return None
    scaled = S / scale
    scaled.diagonal(dim1=-2, dim2=-1).add_(1e-7)
    Q = _eigenvectors(scaled)
    if Q is None:
        return None
    if descending:
        Q = Q.flip(-1)
    if old is not None:
        agreement = (Q * old).sum(-2, keepdim=True)
        Q = torch.where(agreement < 0, -Q, Q)
    return Q.contiguous()


def _eigenvectors(S: Tensor) -> Tensor | None:
    for attempt in (S, S.to("cpu", torch.float64)):
        try:
            Q = torch.linalg.eigh(attempt).eigenvectors
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            continue
        if bool(torch.isfinite(Q).all()):
            return Q.to(S)
    return None


def accumulate(factor: Tensor, moment: Tensor, *, beta: float, normalize: bool) -> None:
    """Update an exponential average of second moments, in place: S ← beta·S + (1 - beta)·M.

    Args:
        factor: S, symmetric.
        moment: M, symmetric positive semidefinite.
        beta: Decay.
        normalize: Divide M by its trace, so that the average does not depend on the scale of the loss. A zero or
            non-finite M is left out.
    """
    trace = moment.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    usable = torch.isfinite(trace) & (trace > 0)
    share = torch.where(usable, torch.full_like(trace, 1 - beta), 0.0)
    weight = torch.where(usable, share / trace, 0.0) if normalize else share
    factor.mul_(1 - share).addcmul_(torch.where(usable, moment, 0.0), weight)
