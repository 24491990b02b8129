"""A matrix in two bases and their complements: four parts whose lifts add up to it."""

from typing import NamedTuple

from torch import Tensor


class Parts(NamedTuple):
    """The four parts of G (..., m, n) for bases U_L (..., m, r) and U_R (..., n, r), with P = I - U Uᵀ.

    Attributes:
        main: U_Lᵀ G U_R, (..., r, r).
        A: P_L G U_R, (..., m, r).
        B: U_Lᵀ G P_R, (..., r, n).
        C: P_L G P_R, (..., m, n).
    """

    main: Tensor
    A: Tensor
    B: Tensor
    C: Tensor


def block_project(G: Tensor, U_L: Tensor, U_R: Tensor) -> Parts:
    """Return the four parts of a matrix, with two products with it.

    Their lifts U_L main U_Rᵀ + A U_Rᵀ + U_L B + C add up to G whether or not the bases are orthonormal.
    """
    A = G @ U_R
    B = U_L.mT @ G
    C = G - U_L @ B
    main = U_L.mT @ A
    A = A - U_L @ main
    B = B - main @ U_R.mT
    return Parts(main, A, B, C.sub_(A @ U_R.mT))


def block_lift(main: Tensor, A: Tensor, B: Tensor, U_L: Tensor, U_R: Tensor) -> Tensor:
    """Return U_L main U_Rᵀ + A U_Rᵀ + U_L B, the lift of all parts but C, which is its own."""
    return (U_L @ main + A) @ U_R.mT + U_L @ B
