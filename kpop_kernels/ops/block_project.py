"""A matrix in two bases and their complements: four parts whose lifts add up to it."""

from typing import NamedTuple

import torch
from torch import Tensor

from .._schema import scalar


class Parts(NamedTuple):
    """The four parts of G (..., m, n) for bases U_L (..., m, r) and U_R (..., n, s), with P = I - U Uᵀ.

    Attributes:
        main: U_Lᵀ G U_R, (..., r, s).
        A: P_L G U_R, (..., m, s).
        B: U_Lᵀ G P_R, (..., r, n).
        C: P_L G P_R, (..., m, n).
    """

    main: Tensor
    A: Tensor
    B: Tensor
    C: Tensor


def block_project(
    G: Tensor,  # (..., m, n)
    U_L: Tensor,  # (..., m, r)
    U_R: Tensor,  # (..., n, s)
) -> Parts:
    """Return the four parts of a matrix.

        main = U_Lᵀ G U_R          A = G U_R - U_L main
        B = U_Lᵀ G - main U_Rᵀ     C = G - U_L U_Lᵀ G - A U_Rᵀ

    Their lifts U_L main U_Rᵀ + A U_Rᵀ + U_L B + C add up to G whether or not the bases are orthonormal.

    Args:
        G: Matrices; float32, bfloat16, float16 (computed in float32) or float64. Not modified.
        U_L: Left basis in the compute dtype of G.
        U_R: Right basis, likewise.

    Returns:
        The parts in the compute dtype.

    Raises:
        ValueError: Shapes or devices do not fit, or a tensor requires grad in grad mode.
        TypeError: A tensor is not floating point, or a basis is not in the compute dtype.

    Numerics:
        float32, m, n ≤ 257: the lifts add up to G within 1e-6 of its Frobenius norm. A NaN or Inf in one matrix
        of a batch poisons that matrix only.

    Source:
        The Clean paper. Reference: python_ref/block_project.py.
    """
    return Parts(*torch.ops.kpop.block_project(G, U_L, U_R))


def block_lift_(
    X: Tensor,  # (..., m, n)
    main: Tensor | None,  # (..., r, s)
    A: Tensor | None,  # (..., m, s)
    B: Tensor | None,  # (..., r, n)
    C: Tensor | None,  # (..., m, n)
    U_L: Tensor,  # (..., m, r)
    U_R: Tensor,  # (..., n, s)
    *,
    alpha: float | Tensor = 1.0,
    beta: float | Tensor = 1.0,
) -> Tensor:  # X
    """Add the lifts of parts to a matrix, in place, and return it.

        X ← beta·X + alpha·(U_L main U_Rᵀ + A U_Rᵀ + U_L B + C)

    A parameter descends with alpha = -lr and beta = 1 - lr·weight_decay.

    Args:
        X: float32, bfloat16, float16 (computed in float32) or float64. Overwritten, rounded once.
        main: Part in both bases, in the compute dtype of X; None is zero.
        A: Part in the right basis, likewise.
        B: Part in the left basis, likewise.
        C: Part in neither, likewise.
        U_L: Left basis in the compute dtype of X.
        U_R: Right basis, likewise.
        alpha: Factor of the lifts; a 0-d tensor on X's device is read there, without a synchronization.
        beta: Factor of the old X, likewise.

    Raises:
        ValueError: Shapes or devices do not fit, X shares memory with another tensor, or a tensor requires grad in
            grad mode.
        TypeError: A tensor is not floating point, or parts or bases are not in the compute dtype.

    Numerics:
        float32, m, n ≤ 257: relative Frobenius error below 1e-6 against float64.

    Source:
        The Clean paper. Reference: python_ref/block_project.py.
    """
    torch.ops.kpop.block_lift_(X, main, A, B, C, U_L, U_R, alpha=scalar(alpha), beta=scalar(beta))
    return X
