"""Polar factors: symmetric products by halves where that is faster than BLAS, the others by BLAS."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .. import _polar
from .native import threads
from .symmetric import symm_mm, syrk

# Below, a launch and the packing cost more than half of the multiply-adds saves.
LEAST_ORDER = 48
LEAST_MULTIPLY_ADDS = 2**21
"""Of the full product, for each thread."""


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
    return _polar.HalfProducts(symm_mm, syrk, pays) if large else _polar.Products()
