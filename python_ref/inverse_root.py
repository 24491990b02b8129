"""Inverse roots A^(-1/p) of symmetric positive definite matrices: truth and iteration as mathematics.

With L an upper bound of the spectrum, Y₀ = A/L and Z₀ = I, one step of the coupled iteration is

    P = ZY;   Y ← aY + bYP;   Z ← aZ + bPZ.

Everything commutes. On an eigenvalue λ of Y₀ the step acts as x ← ax + bx³ on x = √λ, with the eigenvalues
√λ·x of Y, x/√λ of Z and x² of P; as x → 1, Y → Y₀^(1/2) and Z → Y₀^(-1/2).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Coupled(NamedTuple):
    """Both limits of the coupled iteration."""

    Y: Tensor
    Z: Tensor


def spectrum_bound(A: Tensor) -> Tensor:
    """Return 1.01·min(Wolkowicz–Styan, Collatz–Wielandt), an upper bound of |λ|, in float64.

    Wolkowicz–Styan: m + s·√(n-1) with the eigenvalues' mean m and standard deviation s.
    Collatz–Wielandt: max (|A|r)ᵢ / rᵢ for any positive vector r, here the row sums of |A|.
    """
    A = A.to(torch.float64)
    n = A.shape[-1]
    mean = A.diagonal(dim1=-2, dim2=-1).mean(-1)
    variance = A.square().sum((-2, -1)) / n - mean**2
    wolkowicz_styan = mean + (variance.clamp_min(0) * (n - 1)).sqrt()
    rows = A.abs().sum(-1).clamp_min(torch.finfo(torch.float64).tiny)
    collatz_wielandt = ((A.abs() @ rows[..., None])[..., 0] / rows).amax(-1)
    return 1.01 * torch.minimum(wolkowicz_styan, collatz_wielandt)


def inverse_root(A: Tensor, p: int, *, damping: float = 0.0, relative_damping: float = 0.0) -> Tensor:
    """Return (A + δI)^(-1/p) in float64 by its eigenvalues, with δ = damping + relative_damping·L.

    A zero matrix with δ = 0 gives zero.
    """
    A = (A.to(torch.float64) + A.to(torch.float64).mT) / 2
    delta = damping + relative_damping * spectrum_bound(A)
    eigvals, Q = torch.linalg.eigh(A)
    eigvals = eigvals + delta[..., None]
    nothing = (eigvals == 0).all(-1, keepdim=True)
    powers = torch.where(nothing, 0.0, eigvals ** (-1 / p))
    W = (Q * powers[..., None, :]) @ Q.mT
    return (W + W.mT) / 2


def coupled_newton_schulz(Y: Tensor, schedule: Sequence[tuple[float, float]]) -> Coupled:
    """Return Y^(1/2) and Y^(-1/2) for eigenvalues of Y in (0, 1], in float64."""
    Y = Y.to(torch.float64)
    Z = torch.eye(Y.shape[-1], dtype=torch.float64).expand_as(Y)
    for a, b in schedule:
        P = Z @ Y
        Y, Z = a * Y + b * Y @ P, a * Z + b * P @ Z
    return Coupled(Y, Z)


def iterated_inverse_root(
    A: Tensor,
    p: int,
    schedule: Sequence[tuple[float, float]],
    second_stage: Sequence[tuple[float, float]] = (),
) -> Tensor:
    """Return A^(-1/p) in float64 by the iteration: p = 1 squares the root, p = 4 takes its square root."""
    A = A.to(torch.float64)
    L = spectrum_bound(A)[..., None, None]
    W = coupled_newton_schulz(A / L, schedule).Z / L.sqrt()
    if p == 1:
        return W @ W
    if p == 4:
        L = spectrum_bound(W)[..., None, None]
        return coupled_newton_schulz(W / L, second_stage).Y * L.sqrt()
    return W
