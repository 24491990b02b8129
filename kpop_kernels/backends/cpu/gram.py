"""Covariance updates: symmetric products whose epilogue scales and adds the old covariance in its place."""

from collections.abc import Sequence

from torch import Tensor

from .symmetric import Operand, products


def gram_ema_foreach_(
    S: Sequence[Tensor], X: Sequence[Tensor], *, beta: float, alpha: Sequence[float], side: Sequence[str]
) -> None:
    """Update every S ← beta·S + alpha·X Xᵀ (or XᵀX), symmetric bit for bit."""
    operands = [Operand(x, transposed=each == "left") for x, each in zip(X, side, strict=True)]
    products(operands, operands, S, alpha, beta, out=S)
