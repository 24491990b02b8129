"""Eigenbases of Kronecker factors, renewed from the ones before, by LAPACK through torch.linalg."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._schema import compute_dtype

_NEAR = 0.1
"""Part of QᵀSQ, by Frobenius norm, off the diagonal up to which "auto" trusts one step of QR from Q."""

Pairs = tuple[Tensor, Tensor]


class Found(NamedTuple):
    """Eigenvectors in columns, their eigenvalues, and the change Q'ᵀ Q from the basis before."""

    Q: Tensor
    eigvals: Tensor
    P: Tensor


def refresh_eigenbasis(
    S: Tensor,
    Q: Tensor | None,
    *,
    method: str = "auto",
    sort: bool = True,
    out: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    """Write the new basis, its eigenvalues, Q_newᵀ Q and which matrices kept the old one for a failure."""
    n, dtype = S.shape[-1], compute_dtype(S)
    flat = (S.shape[:-2].numel(), n, n)
    S = S.reshape(flat).to(dtype)
    identity = torch.eye(n, dtype=dtype, device=S.device)
    old = identity.expand(flat) if Q is None else Q.reshape(flat)
    with full_precision():
        scaled, scale, usable, zero = _scaled(S)
        by_qr = _near(scaled, old) if method == "auto" else torch.full_like(usable, method == "qr")
        by_qr = by_qr & usable if Q is not None else torch.zeros_like(usable)
        new, values, P = old, S.new_zeros(S.shape[:-1]), identity.expand(flat)
        failed = ~usable & ~zero
        for chosen, decompose in ((by_qr, _power_step), (usable & ~by_qr, _eigh)):
            if not bool(chosen.any()):
                continue
            # The others are the identity, so that no matrix's bits depend on which they are.
            found = decompose(_where(chosen, scaled, identity), old)
            if sort:
                found = _falling(found)
            if Q is not None:
                found = _aligned(found)
            finite = (found.Q.sum((-2, -1)) + found.eigvals.sum(-1)).isfinite()
            failed |= chosen & ~finite
            renewed = chosen & finite
            new, P = _where(renewed, found.Q, new), _where(renewed, found.P, P)
            values = torch.where(renewed[:, None], found.eigvals * scale[:, None], values)
        values = torch.where(failed[:, None], torch.nan, values)
    for target, value in zip(out, (new, values, P, failed), strict=True):
        target.copy_(value.reshape(target.shape))


def aligned(Q: Tensor, old: Tensor) -> Tensor:
    """Return the columns with signs that agree with the old ones; where there is nothing to agree with, +."""
    agreement = (Q * old).sum(-2, keepdim=True)
    return torch.where(agreement < 0, -Q, Q)


@contextmanager
def full_precision() -> Iterator[None]:
    """Multiply float32 matrices in float32, whatever torch is allowed otherwise: small eigenvalues need it."""
    backends: tuple[Any, ...] = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    allowed = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, precision in zip(backends, allowed, strict=True):
            backend.fp32_precision = precision


def _where(chosen: Tensor, one: Tensor, other: Tensor) -> Tensor:
    return one if bool(chosen.all()) else torch.where(chosen[:, None, None], one, other)


def _scaled(S: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return matrices of mean diagonal about 1, their divisors, which can be decomposed, and which are zero.

    Eigenvectors do not change, and factors of any magnitude are decomposed alike. Zero is no basis's factor.
    """
    mean = S.diagonal(dim1=-2, dim2=-1).mean(-1)
    largest = torch.linalg.vector_norm(S, torch.inf, dim=(-2, -1)) if S.numel() else torch.zeros_like(mean)
    usable = largest.isfinite() & mean.isfinite() & (mean > 0)
    scale = torch.ldexp(torch.ones_like(mean), mean.frexp().exponent - 1)
    scale = torch.where(usable, scale, 1.0)
    return S / scale[:, None, None], scale, usable, largest == 0


def _near(S: Tensor, Q: Tensor) -> Tensor:
    """Tell which bases already make their matrices nearly diagonal."""
    T = Q.mT @ S @ Q
    off_diagonal = T - torch.diag_embed(T.diagonal(dim1=-2, dim2=-1))
    return torch.linalg.matrix_norm(off_diagonal) <= _NEAR * torch.linalg.matrix_norm(T)


def _power_step(S: Tensor, Q: Tensor) -> Found:
    """Return one step of orthogonal iteration and its Rayleigh quotients, diag(Q'ᵀSQ') = diag(RPᵀ).

    Columns are ordered by falling qᵀSq first, so that the QR factorization of SQ gives the larger eigenvalues
    the earlier columns; they return to their places.
    """
    SQ = S @ Q
    order = (Q * SQ).sum(-2).argsort(dim=-1, descending=True, stable=True)
    new, R = torch.linalg.qr(_columns(SQ, order))
    P = new.mT @ Q
    eigvals = (R * _columns(P, order)).sum(-1)
    return _reordered(Found(new, eigvals, P), order.argsort(dim=-1))


def _eigh(S: Tensor, old: Tensor) -> Found:
    """Return eigenvectors and eigenvalues, rising; NaN where they cannot be had.

    The diagonal is shifted a little, which changes no eigenvector but keeps LAPACK from its hard cases.
    """
    shift = torch.finfo(S.dtype).eps
    S = S.clone()
    S.diagonal(dim1=-2, dim2=-1).add_(shift)
    values, vectors = eigenpairs(S)
    vectors = vectors.to(S)
    return Found(vectors, values.to(S) - shift, vectors.mT @ old)


def eigenpairs(S: Tensor) -> Pairs:
    """Return rising eigenvalues and eigenvectors of matrices, NaN where they cannot be had.

    What fails is tried again in float64, and then on the CPU, one matrix at a time.
    """
    for dtype in dict.fromkeys((S.dtype, torch.float64)):
        if (pairs := _attempt(S.to(dtype))) is not None:
            return pairs
    n = S.shape[-1]
    nothing = (
        torch.full((n,), torch.nan, dtype=torch.float64),
        torch.full((n, n), torch.nan, dtype=torch.float64),
    )
    alone = [_attempt(A) or nothing for A in S.to("cpu", torch.float64)]
    return torch.stack([pairs[0] for pairs in alone]), torch.stack([pairs[1] for pairs in alone])


def _attempt(S: Tensor) -> Pairs | None:
    try:
        values, vectors = torch.linalg.eigh(S)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        return None
    return (values, vectors) if bool(vectors.sum().isfinite()) else None


def _falling(found: Found) -> Found:
    """Return columns and eigenvalues ordered by falling eigenvalue."""
    return _reordered(found, found.eigvals.argsort(dim=-1, descending=True, stable=True))


def _aligned(found: Found) -> Found:
    """Return columns with signs that agree with the old ones; where there is nothing to agree with, +."""
    sign = torch.where(found.P.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(found.P)
    return Found(found.Q * sign[..., None, :], found.eigvals, found.P * sign[..., :, None])


def _reordered(found: Found, order: Tensor) -> Found:
    rows = order[..., :, None].expand_as(found.P)
    return Found(_columns(found.Q, order), found.eigvals.gather(-1, order), found.P.gather(-2, rows))


def _columns(Q: Tensor, order: Tensor) -> Tensor:
    return Q.gather(-1, order[..., None, :].expand_as(Q))
