"""Moving averages kept in 8-bit blocks, in one CUDA pass."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .native import (
    FLOATS,
    Number,
    block_items,
    dense,
    dense_lists,
    dynamic_map,
    kernels,
    random_stream,
    sharing,
)


def ema_int8_(
    codes: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    x: Tensor,
    *,
    beta: float,
    seed: int,
    step: Tensor,
    stream: int,
    offset: int = 0,
    block_size: int = 256,
    out: Tensor,
) -> None:
    """Write m = beta·m + (1 - beta)·x to out and round it stochastically into the blocks."""
    x = x.contiguous()
    number = Number(step, torch.int64, x.device)
    with kernels(x.device) as cuda, dense(codes, scales, zero_points, out) as (c, s, z, m):
        cuda.ema_int8(
            c.data_ptr(),
            s.data_ptr(),
            z.data_ptr(),
            x.data_ptr(),
            FLOATS[x.dtype],
            x.numel(),
            m.data_ptr(),
            block_size=block_size,
            beta=beta,
            random=random_stream(seed, number, stream, offset),
            step=number.address,
        )


def ema_sq_dynamic8_(
    codes: Tensor, absmax: Tensor, x: Tensor, *, beta: float, block_size: int = 256, out: Tensor
) -> None:
    """Write v = beta·v + ((1 - beta)·x)·x to out and its nearest codes into the blocks."""
    x = x.contiguous()
    with kernels(x.device) as cuda, dense(codes, absmax, out) as (c, a, v):
        cuda.ema_sq_dynamic8(
            c.data_ptr(),
            a.data_ptr(),
            x.data_ptr(),
            FLOATS[x.dtype],
            x.numel(),
            v.data_ptr(),
            block_size=block_size,
            beta=beta,
            map=dynamic_map(False, x.device).data_ptr(),
        )


def ema_int8_foreach_(
    codes: Sequence[Tensor],
    scales: Sequence[Tensor],
    zero_points: Sequence[Tensor],
    x: Sequence[Tensor],
    *,
    beta: float,
    seed: int,
    step: Sequence[Tensor],
    stream: Sequence[int],
    offset: Sequence[int],
    block_size: int = 256,
    out: Sequence[Tensor],
) -> None:
    """Write m = beta·m + (1 - beta)·x of a list to out and round it stochastically into the blocks.

    Items of each step take one call.
    """
    device = x[0].device
    values = [item.contiguous() for item in x]
    with kernels(device) as cuda, dense_lists(codes, scales, zero_points, out) as (*blocks, means):
        items = block_items(x=values, out=means, affine=blocks, places=(stream, offset))
        for members in sharing(device, step):
            number = Number(step[members[0]], torch.int64, device)
            cuda.ema_int8_list(
                [items[i] for i in members],
                block_size=block_size,
                beta=beta,
                random=random_stream(seed, number),
                step=number.address,
            )


def ema_sq_dynamic8_foreach_(
    codes: Sequence[Tensor],
    absmax: Sequence[Tensor],
    x: Sequence[Tensor],
    *,
    beta: float,
    block_size: int = 256,
    out: Sequence[Tensor],
) -> None:
    """Write v = beta·v + ((1 - beta)·x)·x of a list to out and its nearest codes into the blocks."""
    device = x[0].device
    values = [item.contiguous() for item in x]
    with kernels(device) as cuda, dense_lists(codes, absmax, out) as (*blocks, means):
        cuda.ema_sq_dynamic8_list(
            block_items(x=values, out=means, dynamic=blocks),
            block_size=block_size,
            beta=beta,
            map=dynamic_map(False, device).data_ptr(),
        )
