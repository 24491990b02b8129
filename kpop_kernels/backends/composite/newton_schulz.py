"""Polar factors in aten."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .. import _polar


def newton_schulz(X: Tensor, *, out: Tensor, **options: Any) -> None:
    """Write the polar factor of X to out."""
    _polar.newton_schulz(X, **options, out=out, products=_polar.Products())


def newton_schulz_foreach(X: Sequence[Tensor], out: Sequence[Tensor], **options: Any) -> None:
    """Write the polar factors of a list."""
    _polar.newton_schulz_foreach(X, out, **options, products=_polar.Products())
