"""Inverse roots in aten: batched products with preallocated outputs, all decisions on the device."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ... import coefficients
from ..._schema import compute_dtype
from .symmetric import mirror

SAFETY = 1.01

Rounding = Callable[[Tensor, float], Tensor]


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
    S = A.to(compute_dtype(A)).reshape(-1, n, n)
    Y, L, unit = _normalize(S / 2 + S.mT / 2, damping, relative_damping)
    rounding = _rounding("fp32" if A.dtype == torch.float64 else precision)
    if method == "eigh":
        X = _eigh_root(Y, p)
    else:
        X = _iterated_root(Y, p, _pairs(schedule), _pairs(second_stage), rounding)
    # A zero matrix has L = 0 and gets a root of zero; NaN and Inf reach every entry through L.
    scale = torch.where(L == 0, 0.0, torch.where(L.isfinite(), L * unit, torch.nan) ** (-1 / p))
    root.copy_(mirror(X * scale).reshape(A.shape))
    bound.copy_((L * unit).reshape(bound.shape))


def inverse_root_foreach(
    A: Sequence[Tensor], out: Sequence[Tensor], bounds: Sequence[Tensor], p: int, **options: Any
) -> None:
    """Write the roots of a list: tensors of one size are computed as one batch."""
    sizes: dict[int, list[int]] = {}
    for i, item in enumerate(A):
        sizes.setdefault(item.shape[-1], []).append(i)
    for n, members in sizes.items():
        S = torch.cat([A[i].reshape(-1, n, n) for i in members])
        root, bound = torch.empty_like(S), torch.empty(len(S), dtype=compute_dtype(S), device=S.device)
        inverse_root(S, p, **options, out=(root, bound))
        counts = [bounds[i].numel() for i in members]
        for i, X, L in zip(members, root.split(counts), bound.split(counts), strict=True):
            out[i].copy_(X.reshape(out[i].shape))
            bounds[i].copy_(L.reshape(bounds[i].shape))


def _normalize(S: Tensor, damping: float, relative_damping: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return Y = (S + δI)/(L·unit) with its spectrum in [0, 1), the bound L and the power of two ``unit``.

    The unit takes the size of the entries out before anything is squared; as a power of 16 it has exact
    roots.
    """
    largest = S.abs().amax((-2, -1), keepdim=True) + damping
    unit = torch.exp2((largest.log2() / 4).floor().mul(4).clamp(-120, 120))
    S = S / unit
    L = _spectrum_bound(S)
    delta = damping / unit + relative_damping * L
    L = L + SAFETY * delta
    Y = S / torch.where(L == 0, 1.0, L)
    Y.diagonal(dim1=-2, dim2=-1).add_((delta / torch.where(L == 0, 1.0, L)).squeeze(-1))
    return Y, L, unit


def _spectrum_bound(S: Tensor) -> Tensor:
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


def _eigh_root(Y: Tensor, p: int) -> Tensor:
    """Return Y^(-1/p); eigenvalues below the rounding unit are taken to be that large."""
    identity = torch.eye(Y.shape[-1], dtype=Y.dtype, device=Y.device)
    finite = Y.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)
    eigvals, Q = torch.linalg.eigh(torch.where(finite, Y, identity))
    Q = Q * eigvals.clamp_min(torch.finfo(Y.dtype).eps).pow(-0.5 / p).unsqueeze(-2)
    return Q @ Q.mT


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
        L = _spectrum_bound(Z)
        return _coupled_newton_schulz(Z / L, second_stage, rounding, want="Y") * L.sqrt()
    return Z


def _coupled_newton_schulz(
    Y: Tensor, schedule: list[tuple[float, float]], rounding: Rounding, want: str
) -> Tensor:
    """Return Y^(1/2) or Y^(-1/2). Only products are rounded, Y and Z themselves are carried in full.

    The first step needs one product, because Z = I; the last one updates only what is wanted.
    """
    scales = coefficients.power_of_two_scales(tuple(schedule))
    last = len(schedule) - 1
    Z = P = torch.empty(0)
    spare_Y, spare_Z = torch.empty_like(Y), torch.empty_like(Y)
    for step, ((a, b), scale) in enumerate(zip(schedule, scales, strict=False)):
        Y_rounded = rounding(Y, scale.Y)
        if step == 0:
            P, Z_next = Y_rounded, Y * b
            Z_next.diagonal(dim1=-2, dim2=-1).add_(a)
        else:
            Z_rounded = rounding(Z, scale.Z)
            P = rounding(torch.bmm(Z_rounded, Y_rounded), scale.P)
        if step < last or want == "Y":
            Y, spare_Y = torch.baddbmm(Y, Y_rounded, P, beta=a, alpha=b, out=spare_Y), Y
        if step == 0:
            Z = Z_next
        elif step < last or want == "Z":
            Z, spare_Z = torch.baddbmm(Z, P, Z_rounded, beta=a, alpha=b, out=spare_Z), Z
    return Y if want == "Y" else Z


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
