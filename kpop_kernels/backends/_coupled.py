"""The coupled Newton–Schulz iteration in aten: batched products with preallocated results."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .. import coefficients
from ._spectrum import spectrum_bound

Rounding = Callable[[Tensor, float], Tensor]
"""What a product does to an operand that is multiplied by a scale first."""


def exactly(X: Tensor, scale: float) -> Tensor:
    """Return an operand as it is."""
    return X


def iterated_root(
    Y: Tensor,
    p: int,
    schedule: Sequence[float],
    second_stage: Sequence[float],
    rounding: Rounding = exactly,
) -> Tensor:
    """Return Y^(-1/p) for a batch with spectra in [0, 1]; coefficients (a, b) of the steps are flat lists."""
    Z = _coupled_newton_schulz(Y, _pairs(schedule), rounding, want="Z")
    if p == 1:
        return Z @ Z
    if p == 4:
        L = spectrum_bound(Z)
        return _coupled_newton_schulz(Z / L, _pairs(second_stage), rounding, want="Y") * L.sqrt()
    return Z


def _coupled_newton_schulz(
    Y: Tensor, schedule: list[tuple[float, float]], rounding: Rounding, want: str
) -> Tensor:
    """Return Y^(1/2) or Y^(-1/2). Only products are rounded, Y and Z themselves are carried in full.

    The first step needs one product, because Z = I; the last one updates only what is wanted. Y and Z, never
    P, are kept symmetric: otherwise the null directions of a singular matrix leak into the others.
    """
    scales = coefficients.power_of_two_scales(tuple(schedule))
    last = len(schedule) - 1
    Z, product = torch.zeros_like(Y), torch.empty_like(Y)
    for step, ((a, b), scale) in enumerate(zip(schedule, scales, strict=False)):
        Y_rounded, Z_rounded = rounding(Y, scale.Y), rounding(Z, scale.Z)
        P = rounding(torch.bmm(Z_rounded, Y_rounded), scale.P) if step else Y_rounded
        if step == 0:
            Z = Y * b
            Z.diagonal(dim1=-2, dim2=-1).add_(a)
        elif step < last or want == "Z":
            Z = _symmetric_part(torch.baddbmm(Z, P, Z_rounded, beta=a, alpha=b, out=product))
        if step < last or want == "Y":
            Y = _symmetric_part(torch.baddbmm(Y, Y_rounded, P, beta=a, alpha=b, out=product))
    return Y if want == "Y" else Z


def _symmetric_part(X: Tensor) -> Tensor:
    return (X + X.mT).mul_(0.5)


def _pairs(flat: Sequence[float]) -> list[tuple[float, float]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
