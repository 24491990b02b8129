"""Matrices between two factors: tiles in registers up to a side, BLAS beyond."""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from .native import kernels, threads

_LONGEST = {"avx512": 1024, "avx2": 512, "baseline": 64}
"""Longest side of a matrix whose products are our own, by instruction set: beyond it BLAS is as fast."""

_LEAST_SUM = 16
"""Shortest side of a matrix that BLAS adds a product to: to a few rows it adds term by term, each sum rounded."""

Batch = tuple[int, int, int, bool, bool]


def two_sided(
    G: Sequence[Tensor],
    left: Sequence[Tensor | None],
    right: Sequence[Tensor | None],
    *,
    out: Sequence[Tensor],
    left_transposed: bool = False,
    right_transposed: bool = False,
    keep: float = 0.0,
    weight: Sequence[float] | None = None,
) -> None:
    """Write keep·out + weight·left G right to every out, with factors transposed if that is said.

    What needs no BLAS takes one call. Of out nothing is read when keep is 0; weights are 1 unless given.
    """
    batches: list[Any] = []
    read: list[Tensor | None] = []
    written: list[tuple[Tensor, Tensor]] = []
    for X, L, R, result, share in zip(G, left, right, out, weight or repeat(1.0, len(G)), strict=True):
        if not result.numel() or (L is None and R is None) or not is_ours(X, L, R):
            sides = (transposed(L) if left_transposed else L, transposed(R) if right_transposed else R)
            move(result, X, *sides, keep=keep, weight=share)
            continue
        operands = [None if t is None else single(t) for t in (X, L, R)]
        target = result if is_single(result) else _copy(result, keep)
        batches.append((*map(address, (*operands, target)), batch(X, L, R), keep, share))
        read += operands
        written.append((result, target))
    if batches:
        kernels().two_sided(
            batches, left_transposed=left_transposed, right_transposed=right_transposed, threads=threads()
        )
    write_back(written)


def move(
    out: Tensor, X: Tensor, L: Tensor | None, R: Tensor | None, *, keep: float = 0.0, weight: float = 1.0
) -> None:
    """Write keep·out + weight·L X R to out by BLAS; the sum rides on the last product if it can."""
    factors = [factor.to(torch.float32) for factor in (L, X, R) if factor is not None]
    *before, last = factors if len(factors) < 3 else (factors[0] @ factors[1], factors[2])
    if keep and before and out.ndim == 2 and is_single(out) and min(out.shape) >= _LEAST_SUM:
        torch.addmm(out, before[0], last, beta=keep, alpha=weight, out=out)
        return
    result = before[0] @ last if before else last
    if keep:
        result = out.to(torch.float32).mul(keep).add_(result, alpha=weight)
    out.copy_(result if keep or weight == 1 else result * weight)


def product(L: Tensor | None, X: Tensor, R: Tensor | None) -> Tensor:
    """Return L X R in float32 by BLAS; without factors that is X, perhaps itself."""
    X = X.to(torch.float32)
    if L is not None:
        X = L.to(torch.float32) @ X
    return X if R is None else X @ R.to(torch.float32)


def transposed(factor: Tensor | None) -> Tensor | None:
    """Return a factor's transpose, if there is a factor."""
    return None if factor is None else factor.mT


def is_ours(X: Tensor, L: Tensor | None, R: Tensor | None) -> bool:
    """Tell whether the products of a matrix are our own; without factors there are none."""
    return (L is None and R is None) or is_short(X)


def is_short(X: Tensor) -> bool:
    """Tell whether a matrix is short enough for our own products."""
    return max(X.shape[-2:]) <= _LONGEST[kernels().isa]


def batch(X: Tensor, L: Tensor | None, R: Tensor | None) -> Batch:
    """Return the number of matrices, rows, columns, and whether each matrix has factors of its own."""
    m, n = X.shape[-2:]
    return X.shape[:-2].numel(), m, n, L is not None and L.ndim > 2, R is not None and R.ndim > 2


def is_single(tensor: Tensor) -> bool:
    """Tell whether a tensor is in float32 and contiguous."""
    return tensor.dtype == torch.float32 and tensor.is_contiguous()


def single(tensor: Tensor) -> Tensor:
    """Return a tensor in float32 and contiguous: itself if it is."""
    return tensor if is_single(tensor) else tensor.to(torch.float32).contiguous()


def address(tensor: Tensor | None) -> int:
    """Return where a tensor's data lies; 0 for none."""
    return 0 if tensor is None else tensor.data_ptr()


def write_back(written: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Copy into each first tensor the second that was written in its place, if that is another."""
    for tensor, value in written:
        if value is not tensor:
            tensor.copy_(value)


def _copy(tensor: Tensor, keep: float) -> Tensor:
    return single(tensor) if keep else torch.empty(tensor.shape, dtype=torch.float32)
