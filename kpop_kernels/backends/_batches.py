"""Lists of matrices of mixed sizes as batches of one size each."""

from collections.abc import Sequence

import torch
from torch import Tensor


def by_size(items: Sequence[Tensor]) -> list[list[int]]:
    """Return which items have the same rows and columns; empty ones are left out."""
    sizes: dict[torch.Size, list[int]] = {}
    for i, item in enumerate(items):
        if item.numel():
            sizes.setdefault(item.shape[-2:], []).append(i)
    return list(sizes.values())


def stack(items: Sequence[Tensor], members: Sequence[int]) -> Tensor:
    """Return the members, which have one size, as (batch, rows, columns)."""
    flat = [_flat(items[i]) for i in members]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def scatter(batch: Tensor, items: Sequence[Tensor], members: Sequence[int]) -> None:
    """Copy what was computed of a stack to the members."""
    parts = batch.split([_count(items[i]) for i in members])
    for i, part in zip(members, parts, strict=True):
        items[i].copy_(part.reshape(items[i].shape))


def _flat(item: Tensor) -> Tensor:
    return item.reshape(_count(item), *item.shape[-2:])


def _count(item: Tensor) -> int:
    return item.shape[:-2].numel()
