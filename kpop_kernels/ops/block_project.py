"""A matrix in two bases and their complements: four parts whose lifts add up to it."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .._schema import scalar
from ._arguments import each


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
    found_inf: Tensor | None = None,
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
        found_inf: 0-d tensor; when it is not zero, nothing is changed (decided on the device).

    Raises:
        ValueError: Shapes or devices do not fit, X shares memory with another tensor, or a tensor requires grad in
            grad mode.
        TypeError: A tensor is not floating point, or parts or bases are not in the compute dtype.

    Numerics:
        float32, m, n ≤ 257: relative Frobenius error below 1e-6 against float64.

    Source:
        The Clean paper. Reference: python_ref/block_project.py.
    """
    factors = {"alpha": scalar(alpha), "beta": scalar(beta)}
    torch.ops.kpop.block_lift_(X, main, A, B, C, U_L, U_R, **factors, found_inf=found_inf)
    return X


def block_project_foreach(
    Gs: Sequence[Tensor], U_Ls: Sequence[Tensor], U_Rs: Sequence[Tensor]
) -> list[Parts]:
    """Return the four parts of every matrix of a list as `block_project` does, in one call.

    Args:
        Gs: Matrices of any shapes on one device.
        U_Ls: Left basis of each.
        U_Rs: Right basis of each.

    Returns:
        The parts of each, in order.

    Raises:
        ValueError: As `block_project`, naming the item, or lists differ in length.
        TypeError: As `block_project`, naming the item.
    """
    if not Gs:
        return []
    parts = torch.ops.kpop.block_project_foreach(list(Gs), list(U_Ls), list(U_Rs))
    return [Parts(*item) for item in zip(*parts, strict=True)]


def block_lift_foreach_(
    Xs: Sequence[Tensor],
    mains: Sequence[Tensor | None],
    As: Sequence[Tensor | None],
    Bs: Sequence[Tensor | None],
    Cs: Sequence[Tensor | None],
    U_Ls: Sequence[Tensor],
    U_Rs: Sequence[Tensor],
    *,
    alpha: float | Tensor = 1.0,
    beta: float | Tensor = 1.0,
    found_inf: Tensor | Sequence[Tensor | None] | None = None,
) -> None:
    """Add the lifts of parts to every matrix of a list as `block_lift_` does, in one call.

    Args:
        Xs: Matrices of any shapes on one device. Overwritten.
        mains: Part in both bases of each, or None.
        As: Part in the right basis, likewise.
        Bs: Part in the left basis, likewise.
        Cs: Part in neither, likewise.
        U_Ls: Left basis of each.
        U_Rs: Right basis of each.
        alpha: As in `block_lift_`.
        beta: As in `block_lift_`.
        found_inf: One tensor or None a matrix, or one for all.

    Raises:
        ValueError: As `block_lift_`, naming the item, or lists differ in length.
        TypeError: As `block_lift_`, naming the item.
    """
    if not Xs:
        return
    lists = [list(column) for column in (Xs, mains, As, Bs, Cs, U_Ls, U_Rs)]
    factors = {"alpha": scalar(alpha), "beta": scalar(beta)}
    torch.ops.kpop.block_lift_foreach_(*lists, **factors, found_inf=each(found_inf, len(Xs)))
