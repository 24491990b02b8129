"""Inverse roots in aten: batched products with preallocated outputs, all decisions on the device."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ... import coefficients
from ..._schema import compute_dtype
from .. import _lists
from .._spectrum import eigh_factor, normalize, spectrum_bound
from .symmetric import mirror

Rounding = Callable[[Tensor, float], Tensor]

TINY = 8
"""Up to this order there are too few roundings to average out; such matrices are computed in float64."""


def inverse_root(
    A: Tensor,
    p: int,
    *,
    damping: float,
    relative_damping: float,
    method: str,
    schedule: Sequence[float],
    second_stage: Sequence[float],
    precision: str,
    out: tuple[Tensor, Tensor],
) -> None:
    """Write (A + δI)^(-1/p) and the bound of the spectrum to out."""
    root, bound = out
    n = A.shape[-1]
    if not A.numel():
        bound.zero_()
        return
    dtype = torch.float64 if n <= TINY and A.device.type != "mps" else compute_dtype(A)
    S = A.to(dtype).reshape(-1, n, n)
    normalized = normalize(S, damping, relative_damping)
    rounding = _rounding("fp32" if dtype == torch.float64 else precision)
    if method == "eigh":
        factor = eigh_factor(normalized.Y, p)
        X = factor @ factor.mT
    else:
        X = _iterated_root(normalized.Y, p, _pairs(schedule), _pairs(second_stage), rounding)
    root.copy_(mirror(X * normalized.scale(p)).reshape(A.shape))
    bound.copy_((normalized.bound * normalized.unit).reshape(bound.shape))


def inverse_root_foreach(
    A: Sequence[Tensor], out: Sequence[Tensor], bounds: Sequence[Tensor], p: int, **options: Any
) -> None:
    """Write the roots of a list and the bounds of the spectra."""
    _lists.inverse_roots(inverse_root, A, out, bounds, p, **options)


def _iterated_root(
    Y: Tensor,
    p: int,
    schedule: list[tuple[float, float]],
    second_stage: list[tuple[float, float]],
    rounding: Rounding,
) -> Tensor:
    Z = _coupled_newton_schulz(Y, schedule, rounding, want="Z")
    if p == 1:
        return Z @ Z
    if p == 4:
        L = spectrum_bound(Z)
        return _coupled_newton_schulz(Z / L, second_stage, rounding, want="Y") * L.sqrt()
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


def _rounding(precision: str) -> Rounding:
    """Return what a product does to its operands: nothing, or the loss of digits of a narrower format."""
    if precision == "fp16":
        return lambda X, scale: (X * scale).half().to(X.dtype) / scale
    if precision == "bf16":
        return lambda X, scale: X.bfloat16().to(X.dtype)
    if precision == "tf32":
        return lambda X, scale: _round_to_tf32(X)
    return lambda X, scale: X


def _round_to_tf32(X: Tensor) -> Tensor:
    """Round to 10 bits of mantissa, ties to even."""
    bits = X.view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
