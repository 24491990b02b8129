"""Products that torch computes on Apple GPUs, cut to a size up to which they are right.

MPSMatrixMultiplication was seen to write a band of NaN into (m, k) by (k, n) products from (m + 2k) n elements of
2 GiB on: float32 squares from order 13400.
"""

import torch
from torch import Tensor

from .. import _polar

LARGEST_BYTES = 2**31


def product(
    A: Tensor, B: Tensor, *, C: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0
) -> Tensor:
    """Return alpha·A B + beta·C for batches, (batch, m, k) and (batch, k, n)."""
    (m, k), n = A.shape[-2:], B.shape[-1]
    columns = max((LARGEST_BYTES - 1) // ((m + 2 * k) * A.itemsize), 1)
    if n <= columns:
        return _whole(A, B, C, alpha, beta)
    out = A.new_empty(*A.shape[:-1], n)
    for first in range(0, n, columns):
        part = slice(first, first + columns)
        addend = None if C is None else C[..., part].contiguous()
        out[..., part] = _whole(A, B[..., part].contiguous(), addend, alpha, beta)
    return out


def _whole(A: Tensor, B: Tensor, C: Tensor | None, alpha: float, beta: float) -> Tensor:
    return torch.bmm(A, B) if C is None else torch.baddbmm(C, A, B, beta=beta, alpha=alpha)


class Products(_polar.Products):
    """Products of polar factors by torch, each cut where it is too large."""

    def product(
        self, A: Tensor, B: Tensor, *, C: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0
    ) -> Tensor:
        """Return alpha·A B + beta·C."""
        return product(A, B, C=C, alpha=alpha, beta=beta)


class HalfProducts(Products, _polar.HalfProducts):
    """The same where results are not symmetric; symmetric ones by the package's own kernels."""
