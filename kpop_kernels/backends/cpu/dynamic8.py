"""8-bit blocks on the dynamic map in C++."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..._native import BlockItem
from .._dense import dense_lists
from .native import FLOATS, kernels, threads


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
        items = [
            BlockItem(
                v.numel(),
                x=v.data_ptr(),
                x_type=FLOATS[v.dtype],
                dynamic_codes=c.data_ptr(),
                absmax=a.data_ptr(),
            )
            for v, c, a in zip(values, *results, strict=True)
        ]
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
        items = [
            BlockItem(
                c.numel(),
                dynamic_codes=c.data_ptr(),
                absmax=a.data_ptr(),
                out=result.data_ptr(),
                out_type=FLOATS[dtype],
            )
            for c, a, result in zip(*sources, results, strict=True)
        ]
        kernels().dequantize_dynamic8(items, block_size=block_size, is_signed=signed, threads=threads())
