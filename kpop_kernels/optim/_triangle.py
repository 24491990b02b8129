"""Symmetric matrices stored as their upper triangles, row by row: n(n+1)/2 numbers instead of n²."""

import math

import torch
from torch import Tensor


def packed_length(n: int) -> int:
    """Return the number of entries on and above the diagonal of an n×n matrix."""
    return n * (n + 1) // 2


def pack(S: Tensor) -> Tensor:
    """Return the upper triangles, (..., n(n+1)/2), of symmetric matrices (..., n, n)."""
    rows, columns = _upper(S.shape[-1], S.device)
    return S[..., rows, columns]


def unpack(packed: Tensor) -> Tensor:
    """Return the symmetric matrices, (..., n, n), of upper triangles (..., n(n+1)/2)."""
    n = (math.isqrt(8 * packed.shape[-1] + 1) - 1) // 2
    rows, columns = _upper(n, packed.device)
    S = packed.new_empty(*packed.shape[:-1], n, n)
    S[..., rows, columns] = packed
    S[..., columns, rows] = packed
    return S


def _upper(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    rows, columns = torch.triu_indices(n, n, device=device)
    return rows, columns
