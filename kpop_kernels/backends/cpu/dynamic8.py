"""8-bit blocks on the dynamic map in C++."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .._dense import dense_lists
from .._items import block_items
from .native import kernels, threads


def quantize_dynamic8_foreach(
    x: Sequence[Tensor],
    *,
    block_size: int = 256,
    signed: bool = False,
    out: tuple[Sequence[Tensor], Sequence[Tensor]],
) -> None:
    """Write codes and absmax."""
    values = [item.contiguous() for item in x]
    with dense_lists(*out) as results:
        items = block_items(x=values, dynamic=results)
        kernels().quantize_dynamic8(items, block_size=block_size, is_signed=signed, threads=threads())


def dequantize_dynamic8_foreach(
    codes: Sequence[Tensor],
    absmax: Sequence[Tensor],
    *,
    block_size: int = 256,
    signed: bool = False,
    dtype: torch.dtype = torch.float32,
    out: Sequence[Tensor],
) -> None:
    """Write map[codes]·absmax."""
    sources = [[item.contiguous() for item in each] for each in (codes, absmax)]
    with dense_lists(out) as (results,):
        items = block_items(out=results, dynamic=sources)
        kernels().dequantize_dynamic8(items, block_size=block_size, is_signed=signed, threads=threads())
