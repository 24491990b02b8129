"""The orthogonal polar factor: the truth, and Newton–Schulz as mathematics.

With X = U diag(σ) Vᵀ every odd polynomial of X acts on σ alone:

    aX + b(XXᵀ)X + c(XXᵀ)²X = U diag(aσ + bσ³ + cσ⁵) Vᵀ,

and a schedule that carries σ to 1 carries X to U Vᵀ.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def polar_factor(X: Tensor) -> Tensor:
    """Return U Vᵀ of the singular value decomposition, in float64."""
    U, _, Vh = torch.linalg.svd(X.to(torch.float64), full_matrices=False)
    return U @ Vh


def map_singular_values(X: Tensor, schedule: Sequence[Sequence[float]]) -> Tensor:
    """Return U diag(f(σ/‖X‖_F)) Vᵀ in float64, with f the composition of the schedule's polynomials."""
    X = X.to(torch.float64)
    U, sigma, Vh = torch.linalg.svd(X, full_matrices=False)
    norm = torch.linalg.vector_norm(X, dim=(-2, -1)).unsqueeze(-1)
    sigma = torch.where(norm == 0, 0.0, sigma / norm)
    for a, b, c in schedule:
        sigma = a * sigma + b * sigma**3 + c * sigma**5
    return (U * sigma[..., None, :]) @ Vh


def newton_schulz(X: Tensor, schedule: Sequence[Sequence[float]]) -> Tensor:
    """Return the same by products: A = XXᵀ; X ← aX + (bA + cA²)X, started at X/‖X‖_F."""
    X = X.to(torch.float64)
    X = X / torch.linalg.vector_norm(X, dim=(-2, -1), keepdim=True)
    for a, b, c in schedule:
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X


def gram_newton_schulz(
    X: Tensor, schedule: Sequence[Sequence[float]], restarts: Sequence[int] = ()
) -> Tensor:
    """Return the same as X ← QX with a polynomial Q of R = XXᵀ, both started anew at restarts.

    Each step multiplies X by T = aI + bR + cR², hence Q ← QT and R ← TRT.
    """
    X = X.to(torch.float64)
    X = X / torch.linalg.vector_norm(X, dim=(-2, -1), keepdim=True)
    identity = torch.eye(X.shape[-2], dtype=torch.float64)
    R, Q = X @ X.mT, identity
    for step, (a, b, c) in enumerate(schedule):
        if step in restarts:
            X = Q @ X
            R, Q = X @ X.mT, identity
        T = a * identity + b * R + c * R @ R
        Q, R = Q @ T, T @ R @ T
    return Q @ X
