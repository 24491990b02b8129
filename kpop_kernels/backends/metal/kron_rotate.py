"""Rotations on Apple GPUs: a product for each side that has a factor."""

import torch
from torch import Tensor

from .._dense import dense
from ._blocks import NAMES
from ._products import Lines, launch_tiles, lines, tiles_of


def kron_rotate(
    G: Tensor, Q_L: Tensor | None, Q_R: Tensor | None, *, inverse: bool = False, out: Tensor
) -> None:
    """Write Q_Lᵀ G Q_R, or Q_L G Q_Rᵀ, to out."""
    if Q_L is None and Q_R is None:
        out.copy_(G)
    elif G.numel():
        with dense(out) as (result,):
            multiply(*last_product(G, Q_L, Q_R, inverse=inverse), result)


def last_product(
    G: Tensor, Q_L: Tensor | None, Q_R: Tensor | None, *, inverse: bool = False
) -> tuple[Lines, Lines]:
    """Return the two factors of the last product of a rotation; if there is another one, it is computed."""
    if Q_R is None:
        assert Q_L is not None
        return _factor(Q_L, inverse), lines(G.mT)
    if Q_L is not None:
        middle = torch.empty(G.shape, dtype=torch.float32, device=G.device)
        multiply(_factor(Q_L, inverse), lines(G.mT), middle)
        G = middle
    return lines(G), _factor(Q_R, inverse)


def multiply(left: Lines, right: Lines, out: Tensor) -> None:
    """Write the product of rows and columns to out, which is contiguous."""
    name = f"product_{left.type}_{right.type}_{NAMES[out.dtype]}"
    launch_tiles("kron_rotate", name, tiles_of(out), left, right, [out])


def _factor(Q: Tensor, inverse: bool) -> Lines:
    """Return what a factor gives to a product: on the left the rows of Qᵀ, on the right the columns of Q.

    These are the same lines. For the inverse they are the rows of Q and the columns of Qᵀ.
    """
    Q = Q.to(torch.float32)
    return lines(Q if inverse else Q.mT, shared=Q.ndim == 2)
