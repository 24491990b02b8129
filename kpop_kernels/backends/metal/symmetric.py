"""Products known to be symmetric, on Apple GPUs: tiles of one triangle, each stored twice."""

from typing import NamedTuple

import torch
from torch import Tensor

from .._dense import dense
from . import _shader
from ._blocks import NAMES

_TILE = 64
_THREADS = 128

# A dispatch that takes long is stopped while a display is attached: 2^35 operations take 25 ms on the slowest.
_OPERATIONS_PER_LAUNCH = 2**35
_TILES_PER_LAUNCH = 2**24


def symm_mm(A: Tensor, B: Tensor, *, C: Tensor | None, alpha: float, beta: float, out: Tensor) -> None:
    """Write alpha·A B + beta·C to out."""
    _product(_lines(A), _lines(B.mT), C, alpha, beta, out)


def syrk(X: Tensor, *, C: Tensor | None, alpha: float, beta: float, side: str, out: Tensor) -> None:
    """Write alpha·X Xᵀ + beta·C, or alpha·XᵀX + beta·C, to out."""
    lines = _lines(X if side == "left" else X.mT)
    _product(lines, lines, C, alpha, beta, out)


class _Lines(NamedTuple):
    """A factor (..., n, k) as the kernel reads it: memory without gaps, and the strides of n and k in it."""

    data: Tensor
    k: int
    strides: tuple[int, int]


def _lines(X: Tensor) -> _Lines:
    n, k = X.shape[-2:]
    if X.mT.is_contiguous():
        return _Lines(X.mT, k, (1, n))
    return _Lines(X.contiguous(), k, (k, 1))


def _product(A: _Lines, B: _Lines, C: Tensor | None, alpha: float, beta: float, out: Tensor) -> None:
    n = out.shape[-1]
    if not out.numel():
        return
    if C is None or beta == 0:
        beta, addend = 0.0, out.new_zeros(1, dtype=torch.float32)
    else:
        addend = C.to(torch.float32).contiguous()
    side = -(-n // _TILE)
    tiles = out.numel() // n**2 * (side * (side + 1) // 2)
    operations = 2 * _TILE**2 * max(A.k, 1)
    a_launch = max(1, min(_TILES_PER_LAUNCH, _OPERATIONS_PER_LAUNCH // operations))
    with dense(out) as (result,):
        for first in range(0, tiles, a_launch):
            _shader.kernel("symmetric", f"symmetric_product_{NAMES[A.data.dtype]}")(
                # Without depth there is no memory that could be bound.
                A.data if A.k else result,
                B.data if A.k else result,
                addend,
                result,
                [first, n, A.k, *A.strides, *B.strides],
                [float(alpha), float(beta)],
                threads=min(a_launch, tiles - first) * _THREADS,
                group_size=_THREADS,
            )
