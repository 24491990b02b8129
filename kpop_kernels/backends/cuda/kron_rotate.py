"""Rotations in one CUDA launch: sides with a basis up to 128, others of any length."""

import torch
from torch import Tensor

from .native import FLOATS, dense, kernels


def kron_rotate(
    G: Tensor, Q_L: Tensor | None, Q_R: Tensor | None, *, inverse: bool = False, out: Tensor
) -> None:
    """Write Q_Lᵀ G Q_R, or Q_L G Q_Rᵀ, to out."""
    if not G.numel():
        return
    G, left, right = G.contiguous(), readable(Q_L), readable(Q_R)
    with kernels(G.device) as cuda, dense(out) as (result,):
        cuda.kron_rotate(
            (G.data_ptr(), FLOATS[G.dtype]),
            (result.data_ptr(), FLOATS[result.dtype]),
            shape_of(G, left, right),
            inverse=inverse,
        )


def readable(Q: Tensor | None) -> Tensor | None:
    """Return a factor as the kernels read it. Keep it until the kernel has been queued."""
    return None if Q is None else Q.to(torch.float32).contiguous()


KronShape = tuple[tuple[int, bool], tuple[int, bool], int, int, int]
"""Where each factor is and whether there is one for each matrix; number of matrices, rows, columns."""


def shape_of(G: Tensor, left: Tensor | None, right: Tensor | None) -> KronShape:
    """Return how matrices and their factors are given to a kernel."""
    rows, columns = G.shape[-2:]
    return _factor(left), _factor(right), G.numel() // (rows * columns), rows, columns


def _factor(Q: Tensor | None) -> tuple[int, bool]:
    return (0, False) if Q is None else (Q.data_ptr(), Q.ndim > 2)
