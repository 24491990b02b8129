"""Leading eigenpairs of an averaged Kronecker factor that is never formed."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .._schema import compute_dtype
from .._schema.checks import require_choice, require_integer, require_matrix


class Eigenpairs(NamedTuple):
    """The r leading eigenpairs of a symmetric positive semidefinite matrix.

    Attributes:
        U: (..., m, r), orthonormal columns.
        eigvals: (..., r), not negative, falling.
        failed: (...), bool: they could not be computed and are what was there before.
    """

    U: Tensor
    eigvals: Tensor
    failed: Tensor


def nystrom_eigh(
    G: Tensor,  # (..., m, n)
    U: Tensor | None,  # (..., m, r)
    eigvals: Tensor | None,  # (..., r)
    *,
    rank: int,
    oversampling: int = 8,
    power_iterations: int = 1,
    beta: float = 0.95,
    side: Literal["left", "right"] = "left",
    generator: torch.Generator,
) -> Eigenpairs:
    """Return the leading eigenpairs of A = beta·U Λ Uᵀ + (1-beta)·G Gᵀ by a randomized Nyström approximation.

    With Ω an orthonormal basis of [U | normal random columns] and q power iterations Ω ← qr(AΩ),

        Y = AΩ + νΩ,  CᵀC = Ωᵀ Y,  X = Y C⁻¹ = U' Σ V'ᵀ,  Λ' = max(0, Σ² - ν)

    where ν is the spacing of floating-point numbers at ‖AΩ‖₂: it makes the Cholesky factor C exist. Where it
    still does not, ν grows tenfold up to six times, and then eigenvalues of ΩᵀY take C's place.

    Args:
        G: Gradient; float32, bfloat16, float16 (computed in float32) or float64. Not modified.
        U: Eigenvectors so far, in the compute dtype of G; None starts from a random sketch and without the first
            term.
        eigvals: Eigenvalues so far; None if U is.
        rank: Number r of eigenpairs.
        oversampling: Random columns beyond the rank, at most m - r are taken.
        power_iterations: Number q of power iterations, each a product with A and a QR factorization.
        beta: Weight of the old eigenpairs.
        side: "right" takes GᵀG instead, with U of the shape (..., n, r).
        generator: Source of the random columns, on any device; they are drawn in float32 for every dtype. Equal
            generators give equal results.

    Returns:
        New eigenpairs. Each vector's sign agrees with the column of U at its place, or, without U, with that of
        Ω, so that signs do not depend on LAPACK. A zero gradient leaves U as it is and decays the eigenvalues;
        so does one for which the factorizations fail.

    Raises:
        ValueError: Shapes or devices do not fit, rank exceeds the side, a number is out of range, one of U and
            eigvals is missing, or a tensor requires grad in grad mode.
        TypeError: A tensor is not floating point, or U and eigvals are not in the compute dtype.

    Numerics:
        A is never formed: temporaries take O((m + n)(r + oversampling)) floats. Products are scaled by a power of
        two, so gradients of any finite size do; eigenvalues beyond the dtype's range become its ends. If the
        rank of A is at most r the eigenpairs are exact to rounding (float64: 1e-12).

    Source:
        Tropp et al., Fixed-Rank Approximation of a Positive-Semidefinite Matrix from Streaming Data (2017);
        the warm start: the Clean paper, algorithm 3. Reference: python_ref/nystrom.py.
    """
    op = "nystrom_eigh"
    require_matrix(op, G=G)
    require_choice(op, "side", side, ("left", "right"))
    length = G.shape[-2] if side == "left" else G.shape[-1]
    require_integer(op, 0, length, rank=rank)
    require_integer(op, 0, 2**31 - 1, oversampling=oversampling)
    columns = min(oversampling, length - rank) + (rank if U is None else 0)
    shape = (*G.shape[:-2], length, columns)
    Psi = torch.randn(shape, generator=generator, dtype=torch.float32, device=generator.device)
    pairs = torch.ops.kpop.nystrom_eigh(
        G,
        U,
        eigvals,
        Psi.to(device=G.device, dtype=compute_dtype(G)),
        rank=rank,
        power_iterations=power_iterations,
        beta=beta,
        side=side,
    )
    return Eigenpairs(*pairs)
