"""Covariance updates: a symmetric product whose epilogue scales and adds the old covariance in its place."""

import torch
from torch import Tensor

from ...tuning import ProductConfig
from .symmetric import syrk


def gram_ema_(
    S: Tensor, X: Tensor, *, beta: float, alpha: float, side: str, config: ProductConfig | None = None
) -> None:
    """Update S ← beta·S + alpha·X Xᵀ (or XᵀX), symmetric bit for bit; each tile is read once and written twice."""
    X = X.to(torch.float32) if X.dtype == torch.float64 else X
    syrk(X, C=S, alpha=alpha, beta=beta, side=side, out=S, config=config)
