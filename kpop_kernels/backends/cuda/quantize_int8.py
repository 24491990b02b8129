"""Affine 8-bit blocks in CUDA C++."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .native import FLOATS, Number, block_items, dense, dense_lists, kernels, random_stream, sharing


def quantize_int8(
    x: Tensor,
    *,
    block_size: int = 256,
    rounding: str = "stochastic",
    seed: int = 0,
    step: Tensor | None = None,
    stream: int = 0,
    offset: int = 0,
    mode: str = "unbiased",
    out: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Write codes, scales and zero points."""
    x = x.contiguous()
    number = Number(step, torch.int64, x.device)
    with kernels(x.device) as cuda, dense(*out) as results:
        cuda.quantize_int8(
            x.data_ptr(),
            FLOATS[x.dtype],
            x.numel(),
            *(result.data_ptr() for result in results),
            block_size=block_size,
            stochastic=rounding == "stochastic",
            paper=mode == "paper",
            random=random_stream(seed, number, stream, offset),
            step=number.address,
        )


def dequantize_int8(
    codes: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    *,
    block_size: int = 256,
    dtype: torch.dtype = torch.float32,
    out: Tensor,
) -> None:
    """Write (codes - zero_points)·scales."""
    codes, scales, zero_points = codes.contiguous(), scales.contiguous(), zero_points.contiguous()
    with kernels(codes.device) as cuda, dense(out) as (result,):
        cuda.dequantize_int8(
            codes.data_ptr(),
            scales.data_ptr(),
            zero_points.data_ptr(),
            codes.numel(),
            result.data_ptr(),
            FLOATS[dtype],
            block_size=block_size,
        )


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
    """Write codes, scales and zero points of a list, in one call for the items of each step."""
    device = x[0].device
    values = [item.contiguous() for item in x]
    with kernels(device) as cuda, dense_lists(*out) as results:
        items = block_items(x=values, affine=results, places=(stream, offset))
        for members in sharing(device, step):
            number = Number(step[members[0]], torch.int64, device)
            cuda.quantize_int8_list(
                [items[i] for i in members],
                block_size=block_size,
                stochastic=rounding == "stochastic",
                paper=mode == "paper",
                random=random_stream(seed, number),
                step=number.address,
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
    """Write (codes - zero_points)·scales of a list."""
    sources = [[item.contiguous() for item in each] for each in (codes, scales, zero_points)]
    with kernels(codes[0].device) as cuda, dense_lists(out) as (results,):
        cuda.dequantize_int8_list(block_items(out=results, affine=sources), block_size=block_size)
