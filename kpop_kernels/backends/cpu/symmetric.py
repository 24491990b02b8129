"""Products known to be symmetric: half of the tiles, each stored twice; a list of them in one call."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .native import kernels, threads


def symm_mm(A: Tensor, B: Tensor, *, C: Tensor | None, alpha: float, beta: float, out: Tensor) -> None:
    """Write alpha·A B + beta·C to out."""
    products([Operand(A, transposed=True)], [Operand(B, transposed=False)], [C], [alpha], beta, out=[out])


def syrk(X: Tensor, *, C: Tensor | None, alpha: float, beta: float, side: str, out: Tensor) -> None:
    """Write alpha·X Xᵀ + beta·C, or alpha·XᵀX + beta·C, to out."""
    operand = [Operand(X, transposed=side == "left")]
    products(operand, operand, [C], [alpha], beta, out=[out])


class Operand:
    """A factor (..., k, n), X or its transpose, as the kernel reads it: contiguous as it is or transposed."""

    def __init__(self, X: Tensor, transposed: bool) -> None:
        rows, columns = X.shape[-2:]
        self.k, self.n = (columns, rows) if transposed else (rows, columns)
        if X.dtype != torch.float32:
            X = X.to(torch.float32)
        self.depth_major = not transposed
        if not X.is_contiguous() and X.mT.is_contiguous():
            X, self.depth_major = X.mT, transposed
        self.data = X.contiguous()

    def address(self) -> tuple[int, bool]:
        """Return where the factor lies, and whether its depth comes first."""
        return self.data.data_ptr(), self.depth_major


def products(
    A: Sequence[Operand],
    B: Sequence[Operand],
    C: Sequence[Tensor | None],
    alpha: Sequence[float],
    beta: float,
    *,
    out: Sequence[Tensor],
) -> None:
    """Write every alpha·A B + beta·C to out."""
    batches = []
    addends: list[Tensor] = []
    written: list[tuple[Tensor, Tensor]] = []
    for left, right, addend, scale, result in zip(A, B, C, alpha, out, strict=True):
        if not result.numel():
            continue
        if left.k == 0:
            result.zero_() if addend is None or not beta else result.copy_(addend.to(torch.float32) * beta)
            continue
        address = 0
        if addend is not None and beta:
            addends.append(addend.to(torch.float32).contiguous())
            address = addends[-1].data_ptr()
        target = result
        if result.dtype != torch.float32 or not result.is_contiguous():
            target = torch.empty(result.shape, dtype=torch.float32)
            written.append((result, target))
        count = result.numel() // left.n**2
        batches.append(
            (left.address(), right.address(), address, target.data_ptr(), count, left.n, left.k, scale)
        )
    if batches:
        given = beta if addends else 0.0
        kernels().symmetric_products(batches, beta=given, threads=threads())
    for result, target in written:
        result.copy_(target)
