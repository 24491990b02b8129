"""Products known to be symmetric, in aten: the full product, then one triangle mirrored."""

import torch
from torch import Tensor

from ..._schema import compute_dtype


def symm_mm(A: Tensor, B: Tensor, *, C: Tensor | None, alpha: float, beta: float, out: Tensor) -> None:
    """Write alpha·A B + beta·C to out."""
    dtype = compute_dtype(A)
    product = (A.to(dtype) @ B.to(dtype)).mul_(alpha)
    if C is not None and beta != 0:
        product.add_(C.to(dtype), alpha=beta)
    out.copy_(mirror(product))


def syrk(X: Tensor, *, C: Tensor | None, alpha: float, beta: float, side: str, out: Tensor) -> None:
    """Write alpha·X Xᵀ + beta·C, or alpha·XᵀX + beta·C, to out."""
    left, right = (X, X.mT) if side == "left" else (X.mT, X)
    symm_mm(left, right, C=C, alpha=alpha, beta=beta, out=out)


def mirror(A: Tensor) -> Tensor:
    """Return the symmetric matrix that has the lower triangle of A."""
    return torch.where(torch.ones_like(A, dtype=torch.bool).tril_(), A, A.mT)
