"""Products known to be symmetric."""

import torch
from torch import Tensor


def symm_mm(A: Tensor, B: Tensor, C: Tensor, *, alpha: float, beta: float) -> Tensor:
    """Return alpha·A B + beta·C in float64, for A and B whose product is symmetric."""
    A, B, C = (matrix.to(torch.float64) for matrix in (A, B, C))
    product = torch.einsum("...ik,...kj->...ij", A, B)
    new = alpha * product + beta * C
    return (new + new.mT) / 2


def syrk(X: Tensor, C: Tensor, *, alpha: float, beta: float, side: str) -> Tensor:
    """Return alpha·X Xᵀ + beta·C for side "left", alpha·XᵀX + beta·C for side "right", in float64."""
    left, right = (X, X.mT) if side == "left" else (X.mT, X)
    return symm_mm(left, right, C, alpha=alpha, beta=beta)
