"""Covariance (Gram) updates."""

from typing import Literal

import torch
from torch import Tensor


def gram_ema_(
    S: Tensor,  # (..., n, n)
    X: Tensor,  # (..., n, k) for "left", (..., k, n) for "right"
    *,
    beta: float,
    alpha: float,
    side: Literal["left", "right"],
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
