"""Leading eigenpairs of an averaged Kronecker factor, from products with thin matrices alone."""

import zlib
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ._factors import aligned

_SHIFT_ATTEMPTS = 7
"""The shift as it is, and six times ten times the one before, until the Cholesky factor exists."""


class Eigenpairs(NamedTuple):
    """The r leading eigenpairs of a symmetric positive semidefinite matrix.

    Attributes:
        U: (..., m, r), orthonormal columns.
        eigvals: (..., r), not negative, falling.
        failed: (...), whether they could not be computed and are what was there before.
    """

    U: Tensor
    eigvals: Tensor
    failed: Tensor


def sketch_generator(seed: int, *, step: int) -> torch.Generator:
    """Return the generator of the sketches of a step.

    It lives on the CPU and is a function of its arguments alone, so that a resumed run draws what the
    uninterrupted one would have drawn, on any device. Parameters share draws: what matters is that a sketch
    does not depend on the gradient it meets.
    """
    words = b"".join(word.to_bytes(8, "little") for word in (seed, step))
    return torch.Generator().manual_seed(zlib.crc32(words))


def nystrom_eigh(
    G: Tensor,  # (..., m, n)
    U: Tensor | None,  # (..., m, r)
    eigvals: Tensor | None,  # (..., r)
    *,
    rank: int,
    oversampling: int,
    power_iterations: int,
    beta: float,
    side: Literal["left", "right"],
    generator: torch.Generator,
) -> Eigenpairs:
    """Return the leading eigenpairs of A = beta·U Λ Uᵀ + (1-beta)·G Gᵀ by a randomized Nyström approximation.

    With Ω an orthonormal basis of [U | normal random columns] and q power iterations Ω ← qr(AΩ),

        Y = AΩ + νΩ,  CᵀC = Ωᵀ Y,  X = Y C⁻¹ = U' Σ V'ᵀ,  Λ' = max(0, Σ² - ν)

    where ν is the spacing of floating-point numbers at ‖AΩ‖₂: it makes the Cholesky factor C exist.

    Args:
        G: Gradient, float32 or float64. Not modified.
        U: Eigenvectors so far; None starts from a random sketch and without the first term.
        eigvals: Eigenvalues so far; None if U is.
        rank: Number r of eigenpairs.
        oversampling: Random columns beyond the rank, at most m - r are taken.
        power_iterations: Number q of power iterations, each a product with A and a QR factorization.
        beta: Weight of the old eigenpairs.
        side: "right" takes GᵀG instead, with U of the shape (..., n, r).
        generator: Source of the random columns, on the CPU; they are drawn in float32 for every dtype.

    Returns:
        New eigenpairs. Each vector's sign agrees with the column of U at its place, or, without U, with that of
        Ω, so that signs do not depend on LAPACK. A zero gradient leaves U as it is and decays the eigenvalues;
        so does one for which the factorizations fail.

    Numerics:
        A is never formed: temporaries take O((m + n)(r + oversampling)) floats. Products are scaled by a power of
        two, so gradients of any finite size do; eigenvalues beyond the dtype's range become its ends. If the
        rank of A is at most r the eigenpairs are exact to rounding.

    Source:
        Tropp et al., Fixed-Rank Approximation of a Positive-Semidefinite Matrix from Streaming Data (2017);
        the warm start: the Clean paper, algorithm 3. Reference: python_ref/optim/clean.py.
    """
    H = G if side == "left" else G.mT
    start = _sketch(H, U, rank=rank, oversampling=oversampling, generator=generator)
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
    largest = torch.finfo(G.dtype).max
    raw = (sigma.square() - nu).clamp_min(0)[..., :rank] * scale * scale
    decayed = torch.zeros_like(raw) if eigvals is None else beta * eigvals
    return Eigenpairs(
        torch.where(idle[..., None, None], reference, aligned(vectors[..., :rank], reference)),
        torch.where(idle[..., None], decayed, raw.clamp_max(largest)),
        failed,
    )


def _sketch(
    H: Tensor, U: Tensor | None, *, rank: int, oversampling: int, generator: torch.Generator
) -> Tensor:
    """Return an orthonormal basis of the old eigenvectors and random columns."""
    m = H.shape[-2]
    columns = min(oversampling, m - rank) + (rank if U is None else 0)
    Psi = torch.randn(*H.shape[:-1], columns, generator=generator, dtype=torch.float32).to(H)
    return torch.linalg.qr(Psi if U is None else torch.cat([U, Psi], dim=-1)).Q


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
