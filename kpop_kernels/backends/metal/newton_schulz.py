"""Polar factors on Apple GPUs: symmetric products by halves where that is faster than torch's product."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .. import _polar
from ._torch_products import HalfProducts, Products
from .symmetric import symm_mm, syrk

# Below, the launch and the mirrored store cost more than half of the multiply-adds saves.
LEAST_ORDER = 512


def newton_schulz(X: Tensor, *, out: Tensor, **options: Any) -> None:
    """Write the polar factor of X to out."""
    _polar.newton_schulz(X, **options, out=out, products=_products(X))


def newton_schulz_foreach(X: Sequence[Tensor], out: Sequence[Tensor], **options: Any) -> None:
    """Write the polar factors of a list."""
    _polar.newton_schulz_foreach(X, out, **options, products=_products(*X))


def _products(*X: Tensor) -> _polar.Products:
    large = any(min(item.shape[-2:]) >= LEAST_ORDER for item in X)
    if not large or _has_matrix_units():
        return Products()
    return HalfProducts(symm_mm, syrk, lambda batch, n, k: True)


@lru_cache
def _has_matrix_units() -> bool:
    """Tell whether torch's product runs on matrix units that fragments of 8 x 8 do not reach: from M5 on."""
    words = torch.backends.mps.get_name().split() if torch.backends.mps.is_available() else []
    chips = [int(word[1:]) for word in words if word[0] == "M" and word[1:].isdigit()]
    return any(generation >= 5 for generation in chips)
