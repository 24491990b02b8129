"""A matrix in two bases and their complements."""

import torch
from torch import Tensor

Parts = tuple[Tensor, Tensor, Tensor, Tensor]


def project(G: Tensor, U_L: Tensor, U_R: Tensor) -> Parts:
    """Return the four parts of G in float64; P G is G - U(UᵀG) whether or not U is orthonormal."""
    G, U_L, U_R = (t.to(torch.float64) for t in (G, U_L, U_R))
    P_L, P_R = (torch.eye(U.shape[-2], dtype=U.dtype) - U @ U.mT for U in (U_L, U_R))
    return U_L.mT @ G @ U_R, P_L @ G @ U_R, U_L.mT @ G @ P_R, P_L @ G @ P_R


def lift(main: Tensor, A: Tensor, B: Tensor, C: Tensor, U_L: Tensor, U_R: Tensor) -> Tensor:
    """Return U_L main U_Rᵀ + A U_Rᵀ + U_L B + C in float64: what `project` took apart."""
    main, A, B, C, U_L, U_R = (t.to(torch.float64) for t in (main, A, B, C, U_L, U_R))
    return U_L @ main @ U_R.mT + A @ U_R.mT + U_L @ B + C
