"""Covariance (Gram) updates."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ._arguments import each

Side = Literal["left", "right"]


def gram_ema_(
    S: Tensor,  # (..., n, n)
    X: Tensor,  # (..., n, k) for "left", (..., k, n) for "right"
    *,
    beta: float,
    alpha: float,
    side: Side,
) -> Tensor:  # S
    """Update a covariance in place and return it.

        S ← beta·S + alpha·X Xᵀ   (side "left")
        S ← beta·S + alpha·XᵀX    (side "right")

    The result is symmetric bit for bit: only the lower triangle of S is read, the upper one is its mirror.

    Args:
        S: Symmetric, float32, bfloat16, float16 or float64. Overwritten.
        X: Any floating dtype and strides; products accumulate in float32 (float64 when S is float64).
        beta: Weight of the old S; 0 forgets it, whatever it holds.
        alpha: Weight of the product, often (1 - beta) / rows.
        side: Which product.

    Raises:
        ValueError: Shapes or devices do not fit, S is expanded or shares memory with X, side is unknown, or a
            tensor requires grad in grad mode.
        TypeError: A tensor is not floating point.

    Numerics:
        A NaN or Inf in X poisons S of that batch item only. float32, k ≤ 4096, n ≤ 257: relative Frobenius
        error below 3e-7 against float64.

    Source:
        Martens & Grosse, Optimizing Neural Networks with Kronecker-factored Approximate Curvature (2015).
        Reference: python_ref/gram.py.
    """
    torch.ops.kpop.gram_ema_(S, X, beta=beta, alpha=alpha, side=side)
    return S


def gram_ema_foreach_(
    S: Sequence[Tensor],
    X: Sequence[Tensor],
    *,
    beta: float,
    alpha: float | Sequence[float],
    side: Side | Sequence[Side],
) -> None:
    """Update every covariance of a list in place as `gram_ema_` does, in one call.

    Args:
        S: Covariances of mixed sizes on one device. Overwritten.
        X: One for each; the same tensor may serve several.
        beta: As in `gram_ema_`.
        alpha: As in `gram_ema_`, for each or one for all.
        side: Which product, for each or one for all.

    Raises:
        ValueError: As `gram_ema_`, naming the item, or lists differ in length.
        TypeError: As `gram_ema_`, naming the item.
    """
    if S:
        alphas, sides = each(alpha, len(S)), each(side, len(S))
        torch.ops.kpop.gram_ema_foreach_(list(S), list(X), beta=beta, alpha=alphas, side=sides)
