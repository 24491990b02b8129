"""Inverse roots in aten, in the precision of narrower operands too; all decisions are made on the device."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..._schema import compute_dtype
from .. import _lists
from .._coupled import Rounding, exactly, iterated_root
from .._spectrum import TINY, eigh_factor, normalize
from .symmetric import mirror


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
        X = iterated_root(normalized.Y, p, schedule, second_stage, rounding)
    root.copy_(mirror(X * normalized.scale(p)).reshape(A.shape))
    bound.copy_((normalized.bound * normalized.unit).reshape(bound.shape))


def inverse_root_foreach(
    A: Sequence[Tensor], out: Sequence[Tensor], bounds: Sequence[Tensor], p: int, **options: Any
) -> None:
    """Write the roots of a list and the bounds of the spectra."""
    _lists.inverse_roots(inverse_root, A, out, bounds, p, **options)


def _rounding(precision: str) -> Rounding:
    """Return what a product does to its operands: nothing, or the loss of digits of a narrower format."""
    if precision == "fp16":
        return lambda X, scale: (X * scale).half().to(X.dtype) / scale
    if precision == "bf16":
        return lambda X, scale: X.bfloat16().to(X.dtype)
    if precision == "tf32":
        return lambda X, scale: _round_to_tf32(X)
    return exactly


def _round_to_tf32(X: Tensor) -> Tensor:
    """Round to 10 bits of mantissa, ties to even."""
    bits = X.view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
