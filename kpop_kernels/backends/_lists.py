"""Lists of mixed sizes: what has one size is computed as one batch."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._schema import compute_dtype


def groups(keys: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    """Return the positions of equal keys."""
    found: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        found.setdefault(key, []).append(i)
    return found


def inverse_roots(
    inverse_root: Callable[..., None],
    A: Sequence[Tensor],
    out: Sequence[Tensor],
    bounds: Sequence[Tensor],
    p: int,
    **options: Any,
) -> None:
    """Write the roots of a list by a backend's ``inverse_root``."""
    for members in groups([item.shape[-1] for item in A]).values():
        n = A[members[0]].shape[-1]
        counts = [bounds[i].numel() for i in members]
        S = torch.cat([A[i].reshape(count, n, n) for i, count in zip(members, counts, strict=True)])
        root, bound = torch.empty_like(S), torch.empty(len(S), dtype=compute_dtype(S), device=S.device)
        inverse_root(S, p, **options, out=(root, bound))
        for i, X, L in zip(members, root.split(counts), bound.split(counts), strict=True):
            out[i].copy_(X.reshape(out[i].shape))
            bounds[i].copy_(L.reshape(bounds[i].shape))
