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


def by_size(items: Sequence[Tensor]) -> list[list[int]]:
    """Return which items have the same rows and columns; empty ones are left out."""
    sizes = groups([item.shape[-2:] for item in items])
    return [members for members in sizes.values() if any(items[i].numel() for i in members)]


def stack(items: Sequence[Tensor], members: Sequence[int]) -> Tensor:
    """Return the members, which have one size, as (batch, rows, columns)."""
    flat = [items[i].reshape(_count(items[i]), *items[i].shape[-2:]) for i in members]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def scatter(batch: Tensor, items: Sequence[Tensor], members: Sequence[int]) -> None:
    """Copy what was computed of a stack to the members."""
    parts = batch.split([_count(items[i]) for i in members])
    for i, part in zip(members, parts, strict=True):
        items[i].copy_(part.reshape(items[i].shape))


def _count(item: Tensor) -> int:
    return item.shape[:-2].numel()


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
        S = stack(A, members)
        root, bound = torch.empty_like(S), torch.empty(len(S), dtype=compute_dtype(S), device=S.device)
        inverse_root(S, p, **options, out=(root, bound))
        scatter(root, out, members)
        scatter(bound[:, None, None], [item[..., None, None] for item in bounds], members)
