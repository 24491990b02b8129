"""Covariance updates."""

import torch
from torch import Tensor


def gram_ema(S: Tensor, X: Tensor, *, beta: float, alpha: float, side: str) -> Tensor:
    """Return beta·S + alpha·X Xᵀ for side "left", beta·S + alpha·XᵀX for side "right", in float64."""
    S, X = S.to(torch.float64), X.to(torch.float64)
    product = torch.einsum("...ik,...jk->...ij" if side == "left" else "...ki,...kj->...ij", X, X)
    new = beta * S + alpha * product
    return (new + new.mT) / 2
