"""Weights that a product moves, at its end: no other pass touches them."""

from torch import Tensor

from ._blocks import NAMES
from ._passes import launch_pass
from ._products import Lines, launch_tiles, tiles_of


def update_by_product(W: Tensor, left: Lines, right: Lines, numbers: Tensor | list[float]) -> None:
    """Update W ← decay·W - lr·U, U the product of float32 rows and columns; the numbers of update_scalars."""
    name = f"update_product_{NAMES[W.dtype]}"
    launch_tiles("weight_update", name, tiles_of(W), left, right, [W], numbers)


def update_by(W: Tensor, U: Tensor, numbers: Tensor | list[float]) -> None:
    """Update W ← decay·W - lr·U, both contiguous."""
    launch_pass("weight_update", f"update_pass_{NAMES[W.dtype]}_{NAMES[U.dtype]}", [W, U], numbers)
