"""Covariance updates on Apple GPUs: a symmetric product that adds the old covariance in its place."""

import torch
from torch import Tensor

from .symmetric import syrk


def gram_ema_(S: Tensor, X: Tensor, *, beta: float, alpha: float, side: str) -> None:
    """Update S ← beta·S + alpha·X Xᵀ (or XᵀX), symmetric bit for bit."""
    # The kernels have X in S's dtype or S in float32.
    wide = S.dtype in (torch.float32, X.dtype)
    result = S if wide else S.to(torch.float32)
    syrk(X, C=result, alpha=alpha, beta=beta, side=side, out=result)
    if not wide:
        S.copy_(result)
