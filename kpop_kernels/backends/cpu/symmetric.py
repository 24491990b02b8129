"""Products known to be symmetric: half of the tiles, each stored twice."""

import torch
from torch import Tensor

from .native import kernels, threads


def symm_mm(A: Tensor, B: Tensor, *, C: Tensor | None, alpha: float, beta: float, out: Tensor) -> None:
    """Write alpha·A B + beta·C to out."""
    _product(_Operand(A, transposed=True), _Operand(B, transposed=False), C, alpha, beta, out)


def syrk(X: Tensor, *, C: Tensor | None, alpha: float, beta: float, side: str, out: Tensor) -> None:
    """Write alpha·X Xᵀ + beta·C, or alpha·XᵀX + beta·C, to out."""
    operand = _Operand(X, transposed=side == "left")
    _product(operand, operand, C, alpha, beta, out)


class _Operand:
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


def _product(A: _Operand, B: _Operand, C: Tensor | None, alpha: float, beta: float, out: Tensor) -> None:
    if not out.numel():
        return
    addend = C if beta else None
    if A.k == 0:
        out.zero_() if addend is None else out.copy_(addend.to(torch.float32) * beta)
        return
    if addend is not None:
        addend = (addend if addend.dtype == torch.float32 else addend.to(torch.float32)).contiguous()
    in_place = out.dtype == torch.float32 and out.is_contiguous()
    target = out if in_place else torch.empty(out.shape, dtype=torch.float32)
    kernels().symmetric_product(
        A.data.data_ptr(),
        A.depth_major,
        B.data.data_ptr(),
        B.depth_major,
        addend.data_ptr() if addend is not None else 0,
        target.data_ptr(),
        batch=out.numel() // A.n**2,
        n=A.n,
        k=A.k,
        alpha=alpha,
        beta=beta if addend is not None else 0.0,
        threads=threads(),
    )
    if not in_place:
        out.copy_(target)
