"""Covariance updates: a symmetric product whose epilogue scales and adds the old covariance in its place."""

from torch import Tensor

from .symmetric import syrk


def gram_ema_(S: Tensor, X: Tensor, *, beta: float, alpha: float, side: str) -> None:
    """Update S ← beta·S + alpha·X Xᵀ (or XᵀX), symmetric bit for bit."""
    syrk(X, C=S, alpha=alpha, beta=beta, side=side, out=S)
