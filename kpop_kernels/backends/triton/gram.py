"""Covariance updates: a symmetric product whose epilogue scales and adds the old covariance in its place."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...tuning import ProductConfig
from .symmetric import average_grams


def gram_ema_foreach_(
    S: Sequence[Tensor],
    X: Sequence[Tensor],
    *,
    beta: float,
    alpha: Sequence[float],
    side: Sequence[str],
    config: ProductConfig | None = None,
) -> None:
    """Update S ← beta·S + alpha·X Xᵀ (or XᵀX) of every item, those of the same dtypes and stride in one launch.

    They are symmetric bit for bit; each tile is read once and written twice.
    """
    operands = [x.to(torch.float32) if x.dtype == torch.float64 else x for x in X]
    average_grams(S, operands, alpha=alpha, beta=beta, side=side, config=config)
