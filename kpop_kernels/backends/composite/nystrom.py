"""Leading eigenpairs of an averaged Kronecker factor, from products with thin matrices alone."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..._schema import compute_dtype
from .._eigenbasis import aligned, full_precision

_SHIFT_ATTEMPTS = 7
"""The shift as it is, and six times ten times the one before, until the Cholesky factor exists."""


def nystrom_eigh(
    G: Tensor,
    U: Tensor | None,
    eigvals: Tensor | None,
    Psi: Tensor,
    *,
    rank: int,
    power_iterations: int,
    beta: float,
    side: str,
    out: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Write the leading eigenpairs of beta·U Λ Uᵀ + (1-beta)·G Gᵀ, and which are those from before."""
    G = G.to(compute_dtype(G))
    H = G if side == "left" else G.mT
    with full_precision():
        start = torch.linalg.qr(Psi if U is None else torch.cat([U, Psi], dim=-1)).Q
        scale = _scale(H, eigvals)
        apply = _average(H, U, eigvals, beta=beta, scale=scale)
        Omega = start
        for _ in range(power_iterations):
            Omega = torch.linalg.qr(apply(Omega)).Q
        Y = apply(Omega)
        failed = ~Y.isfinite().all(-1).all(-1)
        idle = failed | (torch.linalg.vector_norm(H, torch.inf, dim=(-2, -1)) == 0)
        Y = torch.where(idle[..., None, None], Omega, Y)
        X, nu = _square_root(Y, Omega)
        vectors, sigma = _thin_svd(X)
    finite = vectors.isfinite().all(-1).all(-1) & sigma.isfinite().all(-1)
    failed, idle = failed | ~finite, idle | ~finite

    reference = start[..., :rank] if U is None else U
    raw = (sigma.square() - nu).clamp_min(0)[..., :rank] * scale * scale
    decayed = torch.zeros_like(raw) if eigvals is None else beta * eigvals
    out[0].copy_(torch.where(idle[..., None, None], reference, aligned(vectors[..., :rank], reference)))
    out[1].copy_(torch.where(idle[..., None], decayed, raw.clamp_max(torch.finfo(raw.dtype).max)))
    out[2].copy_(failed)


def _scale(H: Tensor, eigvals: Tensor | None) -> Tensor:
    """Return the power of two at the largest entry of H and the root of the largest eigenvalue, (..., 1)."""
    largest = torch.linalg.vector_norm(H, torch.inf, dim=(-2, -1))
    if eigvals is not None:
        largest = torch.maximum(largest, eigvals.amax(-1).sqrt())
    return torch.ldexp(torch.ones_like(largest), largest.frexp().exponent - 1)[..., None]


def _average(
    H: Tensor, U: Tensor | None, eigvals: Tensor | None, *, beta: float, scale: Tensor
) -> Callable[[Tensor], Tensor]:
    """Return X ↦ A X / scale², scaling thin matrices only."""
    divisor = scale[..., None]

    def apply(X: Tensor) -> Tensor:
        product = (1 - beta) * (H @ (H.mT @ X / divisor) / divisor)
        if U is None or eigvals is None:
            return product
        return product + beta * (U @ ((eigvals / scale / scale)[..., None] * (U.mT @ X)))

    return apply


def _spacing(x: Tensor) -> Tensor:
    """Return the distance of a positive floating-point number from the next larger one."""
    eps = torch.full_like(x, torch.finfo(x.dtype).eps)
    return torch.ldexp(eps, x.frexp().exponent - 1)


def _square_root(Y: Tensor, Omega: Tensor) -> tuple[Tensor, Tensor]:
    """Return X with X Xᵀ = Yν (Ωᵀ Yν)⁻¹ Yνᵀ for the shifted Yν = Y + νΩ, and ν as (..., 1)."""
    norm = torch.linalg.eigvalsh(Y.mT @ Y)[..., -1:].clamp_min(0).sqrt()
    nu = _spacing(norm)[..., None]
    for _ in range(_SHIFT_ATTEMPTS):
        shifted, B = _shifted(Y, Omega, nu)
        L, info = torch.linalg.cholesky_ex(B)
        defect = (info != 0)[..., None, None]
        if not bool(defect.any()):
            return torch.linalg.solve_triangular(L.mT, shifted, upper=True, left=False), nu[..., 0]
        nu = torch.where(defect, 10 * nu, nu)
    shifted, B = _shifted(Y, Omega, nu)
    w, Q = torch.linalg.eigh(B)
    return shifted @ (Q / torch.maximum(w[..., None, :], nu).sqrt()), nu[..., 0]


def _shifted(Y: Tensor, Omega: Tensor, nu: Tensor) -> tuple[Tensor, Tensor]:
    """Return Y + νΩ and its symmetrized projection on Ω."""
    shifted = Y + nu * Omega
    B = Omega.mT @ shifted
    return shifted, (B + B.mT) / 2


def _thin_svd(X: Tensor) -> tuple[Tensor, Tensor]:
    """Return left singular vectors and values, or NaN; failures are tried again in float64 on the CPU."""
    for attempt in (X, X.to("cpu", torch.float64)):
        try:
            U, sigma, _ = torch.linalg.svd(attempt, full_matrices=False)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            continue
        return U.to(X), sigma.to(X)
    return torch.full_like(X, torch.nan), torch.full_like(X[..., 0, :], torch.nan)
