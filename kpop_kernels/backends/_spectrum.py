"""What every inverse root begins with: the size of the entries, the bound of the spectrum, the damping."""

from typing import NamedTuple

import torch
from torch import Tensor

SAFETY = 1.01
"""Margin of the bound over what is proved for exact arithmetic."""

TINY = 8
"""Up to this order there are too few roundings to average out; such matrices are computed in float64."""

SMALL = 5e-4
"""Eigenvalues below so much of the largest are computed twice in float32."""


class Normalized(NamedTuple):
    """A + δI = bound · unit · Y for a batch (batch, n, n).

    Attributes:
        Y: Symmetric, its spectrum in [0, 1).
        bound: Upper bound of the spectrum in units of ``unit``, (batch, 1, 1); 0 for a zero matrix.
        unit: Power of 16, which has exact roots, (batch, 1, 1).
    """

    Y: Tensor
    bound: Tensor
    unit: Tensor

    def scale(self, p: int) -> Tensor:
        """Return what Y^(-1/p) must be multiplied with: 0 for a zero matrix, NaN where it is not finite."""
        bound = torch.where(self.bound.isfinite(), self.bound * self.unit, torch.nan)
        return torch.where(self.bound == 0, 0.0, bound ** (-1 / p))


def normalize(S: Tensor, damping: float, relative_damping: float) -> Normalized:
    """Normalize (S + Sᵀ)/2; the size of the entries is taken out before anything is squared."""
    S = S / 2 + S.mT / 2
    largest = S.abs().amax((-2, -1), keepdim=True) + damping
    unit = torch.exp2((largest.log2() / 4).floor().mul(4).clamp(-120, 120))
    S = S / unit
    bound = spectrum_bound(S)
    delta = damping / unit + relative_damping * bound
    bound = bound + SAFETY * delta
    divisor = torch.where(bound == 0, 1.0, bound)
    Y = S / divisor
    Y.diagonal(dim1=-2, dim2=-1).add_((delta / divisor).squeeze(-1))
    return Normalized(Y, bound, unit)


def spectrum_bound(S: Tensor) -> Tensor:
    """Return the smaller of the Wolkowicz–Styan and Collatz–Wielandt bounds, (batch, 1, 1), with a margin."""
    n = S.shape[-1]
    mean = S.diagonal(dim1=-2, dim2=-1).mean(-1)
    rms = torch.linalg.vector_norm(S, dim=(-2, -1)) / n**0.5
    deviation = ((rms - mean) * (rms + mean)).clamp_min(0).sqrt()
    wolkowicz_styan = mean + deviation * (n - 1) ** 0.5
    magnitudes = S.abs()
    rows = magnitudes.sum(-1, keepdim=True).clamp_min(torch.finfo(S.dtype).tiny)
    collatz_wielandt = (magnitudes @ rows / rows).amax((-2, -1))
    return SAFETY * torch.minimum(wolkowicz_styan, collatz_wielandt)[:, None, None]


def tiny_eigh_root(
    A: Tensor, p: int, damping: float, relative_damping: float, root: Tensor, bound: Tensor
) -> None:
    """Write (A + δI)^(-1/p) by eigenvalues in float64, and the bound; on the CPU where a GPU has no such type."""
    n = A.shape[-1]
    S = (A.cpu() if A.device.type == "mps" else A).to(torch.float64).reshape(-1, n, n)
    normalized = normalize(S, damping, relative_damping)
    factor = eigh_factor(normalized.Y, p)
    X = factor @ factor.mT * normalized.scale(p)
    root.copy_(((X + X.mT) / 2).reshape(root.shape))
    bound.copy_((normalized.bound * normalized.unit).reshape(bound.shape))


def eigh_factor(Y: Tensor, p: int) -> Tensor:
    """Return F with F Fᵀ = Y^(-1/p); eigenvalues below the rounding unit are taken to be that large."""
    # No entry of Y exceeds 1, so that the sum is finite where all are.
    finite = Y.sum((-2, -1), keepdim=True).isfinite()
    if not finite.all():
        Y = torch.where(finite, Y, torch.eye(Y.shape[-1], dtype=Y.dtype, device=Y.device))
    eigvals, Q = _eigh(Y)
    if Y.dtype == torch.float32:
        _resolve_small_(eigvals, Q, Y)
    return Q.mul_(eigvals.clamp_min(torch.finfo(Y.dtype).eps).pow(-0.5 / p).unsqueeze(-2))


def _resolve_small_(eigvals: Tensor, Q: Tensor, Y: Tensor) -> None:
    """Compute eigenvalues far below the largest once more, in the space of their own eigenvectors.

    eigh errs by several rounding units of the largest eigenvalue it sees. In the space of the small ones that
    is a small one too, and the products that project Y onto it lose much less.
    """
    count = int((eigvals < SMALL * eigvals[:, -1:]).sum(-1).max())
    if not count:
        return
    space = Q[:, :, :count]
    eigvals[:, :count], rotation = _eigh(space.mT @ (Y @ space))
    space.copy_(space @ rotation)


def _eigh(S: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors; float64 solves what float32 gives up on, mostly of low rank."""
    try:
        # There is no solver for Apple GPUs.
        eigvals, Q = torch.linalg.eigh(S.cpu() if S.device.type == "mps" else S)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        eigvals, Q = torch.linalg.eigh(S.to("cpu", torch.float64))
    return eigvals.to(S), Q.to(S)
