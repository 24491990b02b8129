"""Affine 8-bit blocks in C++."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .._dense import dense_lists
from .._items import block_items
from .native import by_step, kernels, threads


def quantize_int8_foreach(
    x: Sequence[Tensor],
    *,
    block_size: int = 256,
    rounding: str = "stochastic",
    seed: int = 0,
    step: Sequence[Tensor | None],
    stream: Sequence[int],
    offset: Sequence[int],
    mode: str = "unbiased",
    out: tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]],
) -> None:
    """Write codes, scales and zero points."""
    values = [item.contiguous() for item in x]
    with dense_lists(*out) as results:
        items = block_items(x=values, affine=results, places=(stream, offset))
        for members, key in by_step(items, seed, step):
            kernels().quantize_int8(
                members,
                block_size=block_size,
                stochastic=rounding == "stochastic",
                paper=mode == "paper",
                **key,
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
        items = block_items(out=results, affine=sources)
        kernels().dequantize_int8(items, block_size=block_size, threads=threads())
