"""Symmetric matrices stored as their upper triangles, row by row: n(n+1)/2 numbers instead of n²."""

import math
from functools import lru_cache

import torch
from torch import Tensor

# Beyond this side the places take more memory than they save time.
_LONGEST_REMEMBERED = 512


def packed_length(n: int) -> int:
    """Return the number of entries on and above the diagonal of an n×n matrix."""
    return n * (n + 1) // 2


def pack(S: Tensor) -> Tensor:
    """Return the upper triangles, (..., n(n+1)/2), of symmetric matrices (..., n, n)."""
    upper, _ = _places(S.shape[-1], S.device)
    return S.flatten(-2).index_select(-1, upper)


def unpack(packed: Tensor) -> Tensor:
    """Return the symmetric matrices, (..., n, n), of upper triangles (..., n(n+1)/2)."""
    n = (math.isqrt(8 * packed.shape[-1] + 1) - 1) // 2
    _, mirrored = _places(n, packed.device)
    return packed.index_select(-1, mirrored).unflatten(-1, (n, n))


def _places(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return where the packed entries are in a flat matrix, and where a flat matrix's entries are packed."""
    return _remembered_places(n, device) if n <= _LONGEST_REMEMBERED else _computed_places(n, device)


def _computed_places(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    rows, columns = torch.triu_indices(n, n, device=device)
    packed = torch.arange(packed_length(n), device=device)
    mirrored = torch.empty(n, n, dtype=torch.int64, device=device)
    mirrored[rows, columns] = packed
    mirrored[columns, rows] = packed
    return rows * n + columns, mirrored.flatten()


_remembered_places = lru_cache(maxsize=64)(_computed_places)
