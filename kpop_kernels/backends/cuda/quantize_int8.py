"""Affine 8-bit blocks in CUDA C++."""

import torch
from torch import Tensor

from .native import FLOATS, Number, dense, kernels, random_stream


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
