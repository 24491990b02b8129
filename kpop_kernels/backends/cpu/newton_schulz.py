"""Polar factors: symmetric products by halves where that is faster than BLAS, the others by BLAS."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _polar
from .native import threads
from .symmetric import symm_mm, syrk

# Below, a launch and the packing cost more than half of the multiply-adds saves.
LEAST_ORDER = 48
LEAST_MULTIPLY_ADDS = 2**21
"""Of the full product, for each thread."""


class HalfProducts(_polar.Products):
    """One triangle, stored twice, where that pays."""

    def gram(self, X: Tensor) -> Tensor:
        """Return X Xᵀ."""
        batch, n, k = X.shape
        if not pays(batch, n, k):
            return super().gram(X)
        out = X.new_empty(batch, n, n)
        syrk(X, C=None, alpha=1.0, beta=0.0, side="left", out=out)
        return out

    def commuting(
        self, A: Tensor, B: Tensor, *, C: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0
    ) -> Tensor:
        """Return alpha·A B + beta·C for symmetric matrices, of which A and B commute."""
        if not pays(*A.shape):
            return super().commuting(A, B, C=C, alpha=alpha, beta=beta)
        out = torch.empty_like(A)
        symm_mm(A, B, C=C, alpha=alpha, beta=beta, out=out)
        return out


def pays(batch: int, n: int, k: int) -> bool:
    """Tell whether halves are faster for `batch` products n×k by k×n."""
    return batch * n * n * k >= LEAST_MULTIPLY_ADDS * threads()


def newton_schulz(X: Tensor, *, out: Tensor, **options: Any) -> None:
    """Write the polar factor of X to out."""
    _polar.newton_schulz(X, **options, out=out, products=_products(X))


def newton_schulz_foreach(X: Sequence[Tensor], out: Sequence[Tensor], **options: Any) -> None:
    """Write the polar factors of a list."""
    _polar.newton_schulz_foreach(X, out, **options, products=_products(*X))


def _products(*X: Tensor) -> _polar.Products:
    large = any(min(item.shape[-2:]) >= LEAST_ORDER for item in X)
    return HalfProducts() if large else _polar.Products()
