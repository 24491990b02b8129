"""Affine 8-bit blocks in C++."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..._native import BlockItem
from .._dense import dense_lists
from .native import FLOATS, kernels, random_key, threads


def quantize_int8_foreach(
    x: Sequence[Tensor],
    *,
    block_size: int = 256,
    rounding: str = "stochastic",
    seed: int = 0,
    step: Tensor | None = None,
    stream: Sequence[int],
    offset: Sequence[int],
    mode: str = "unbiased",
    out: tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]],
) -> None:
    """Write codes, scales and zero points."""
    values = [item.contiguous() for item in x]
    with dense_lists(*out) as results:
        items = [
            BlockItem(
                v.numel(),
                x=v.data_ptr(),
                x_type=FLOATS[v.dtype],
                codes=c.data_ptr(),
                scales=s.data_ptr(),
                zero_points=z.data_ptr(),
                stream=number,
                offset=first,
            )
            for v, c, s, z, number, first in zip(values, *results, stream, offset, strict=True)
        ]
        kernels().quantize_int8(
            items,
            block_size=block_size,
            stochastic=rounding == "stochastic",
            paper=mode == "paper",
            **random_key(seed, step),
            threads=threads(),
        )


def dequantize_int8_foreach(
    codes: Sequence[Tensor],
    scales: Sequence[Tensor],
    zero_points: Sequence[Tensor],
    *,
    block_size: int = 256,
    dtype: torch.dtype = torch.float32,
    out: Sequence[Tensor],
) -> None:
    """Write (codes - zero_points)·scales."""
    sources = [[item.contiguous() for item in each] for each in (codes, scales, zero_points)]
    with dense_lists(out) as (results,):
        items = [
            BlockItem(
                c.numel(),
                codes=c.data_ptr(),
                scales=s.data_ptr(),
                zero_points=z.data_ptr(),
                out=result.data_ptr(),
                out_type=FLOATS[dtype],
            )
            for c, s, z, result in zip(*sources, results, strict=True)
        ]
        kernels().dequantize_int8(items, block_size=block_size, threads=threads())
