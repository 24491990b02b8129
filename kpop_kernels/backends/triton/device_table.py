"""Small tables that kernels read: written once for each device and kept there."""

from functools import lru_cache

import torch
from torch import Tensor

Rows = tuple[tuple[float, ...], ...]


def device_table(rows: Rows, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return rows of equal length on the device, (rows, columns)."""
    capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    # What a graph writes has its values when the graph is replayed, not before: it is not kept.
    return (_write if capturing else _kept)(rows, dtype, device)


@lru_cache(maxsize=256)
def _kept(rows: Rows, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a table that every stream may read: the host waits for it, once for each table."""
    table = _write(rows, dtype, device)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return table


def _write(rows: Rows, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Write rows by launches alone: a copy from the host could not be captured."""
    table = torch.empty(len(rows), len(rows[0]), dtype=dtype, device=device)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            table[i, j].fill_(value)
    return table
