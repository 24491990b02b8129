"""Covariance updates in aten."""

from torch import Tensor

from ..._schema import compute_dtype


def gram_ema_(S: Tensor, X: Tensor, *, beta: float, alpha: float, side: str) -> None:
    """Update S ← beta·S + alpha·X Xᵀ (or XᵀX); the lower triangle is computed, the upper mirrored."""
    dtype = compute_dtype(S)
    X = X.to(dtype)
    product = X @ X.mT if side == "left" else X.mT @ X
    lower = product.mul(alpha).tril_()
    if beta:
        lower.add_(S.to(dtype).tril(), alpha=beta)
    S.copy_(lower + lower.tril(-1).mT)
