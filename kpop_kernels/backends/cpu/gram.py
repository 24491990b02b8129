"""Covariance updates: the product by BLAS, then one pass that scales, adds and mirrors."""

import torch
from torch import Tensor

from .native import kernels, threads


def gram_ema_(S: Tensor, X: Tensor, *, beta: float, alpha: float, side: str) -> None:
    """Update S ← beta·S + alpha·X Xᵀ (or XᵀX), symmetric bit for bit."""
    X = X.to(torch.float32)
    product = (X @ X.mT if side == "left" else X.mT @ X).contiguous()
    n = S.shape[-1]
    in_place = S.dtype == torch.float32 and S.is_contiguous()
    target = S if in_place else S.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
    kernels().symmetric_ema(
        target.data_ptr(),
        n * n,
        n,
        product.data_ptr(),
        S.numel() // (n * n) if n else 0,
        n,
        beta=beta,
        alpha=alpha,
        threads=threads(),
    )
    if not in_place:
        S.copy_(target)
