"""Products that are known to be symmetric, at half the work."""

from typing import Literal

import torch
from torch import Tensor


def symm_mm(
    A: Tensor,  # (..., n, k)
    B: Tensor,  # (..., k, n)
    *,
    C: Tensor | None = None,  # (..., n, n)
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Tensor | None = None,
) -> Tensor:  # (..., n, n)
    """Return alpha·A B + beta·C for a product that is known to be symmetric.

    One triangle is computed and mirrored: the result is symmetric bit for bit, whatever the rounding of A B.
    Which triangle is not specified, so A B and C must be symmetric but for rounding.

    Args:
        A: Left factor; float32, bfloat16, float16 (accumulated in float32) or float64, any strides. Not
            modified.
        B: Right factor, same dtype.
        C: Symmetric addend, any floating dtype. Not read when beta is 0.
        alpha: Weight of the product.
        beta: Weight of C.
        out: Where the result goes: dtype and device of A, no memory in common with the inputs.

    Returns:
        A new tensor in A's dtype, or ``out``.

    Raises:
        ValueError: Shapes or devices do not fit, beta is not 0 without C, ``out`` does not fit or shares
            memory with an input, or a tensor requires grad in grad mode.
        TypeError: A tensor is not floating point, or A and B differ in dtype.

    Numerics:
        float32: as torch.matmul, each entry a sum of k products in float32.

    Source:
        Reference: A B in float64.
    """
    if out is None:
        return torch.ops.kpop.symm_mm(A, B, C=C, alpha=alpha, beta=beta)
    torch.ops.kpop.symm_mm.out(A, B, C=C, alpha=alpha, beta=beta, out=out)
    return out


def syrk(
    X: Tensor,  # (..., m, n)
    *,
    C: Tensor | None = None,  # (..., m, m) for "left", (..., n, n) for "right"
    alpha: float = 1.0,
    beta: float = 0.0,
    side: Literal["left", "right"] = "left",
    out: Tensor | None = None,
) -> Tensor:  # like C
    """Return alpha·X Xᵀ + beta·C (side "left") or alpha·XᵀX + beta·C (side "right"), symmetric bit for bit.

    Args:
        X: float32, bfloat16, float16 (accumulated in float32) or float64, any strides. Not modified.
        C: Symmetric addend, any floating dtype. Not read when beta is 0.
        alpha: Weight of the product.
        beta: Weight of C.
        side: Which product.
        out: Where the result goes: dtype and device of X, no memory in common with the inputs.

    Returns:
        A new tensor in X's dtype, or ``out``.

    Raises:
        ValueError: Shapes or devices do not fit, beta is not 0 without C, side is unknown, ``out`` does not
            fit or shares memory with an input, or a tensor requires grad in grad mode.
        TypeError: A tensor is not floating point.

    Numerics:
        float32: as torch.matmul, each entry a sum of products in float32.

    Source:
        Reference: X Xᵀ in float64.
    """
    if out is None:
        return torch.ops.kpop.syrk(X, C=C, alpha=alpha, beta=beta, side=side)
    torch.ops.kpop.syrk.out(X, C=C, alpha=alpha, beta=beta, side=side, out=out)
    return out
