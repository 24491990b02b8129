"""Affine 8-bit blocks in C++."""

import torch
from torch import Tensor

from .._dense import dense
from .native import FLOATS, kernels, random_stream, threads


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
    with dense(*out) as results:
        kernels().quantize_int8(
            x.data_ptr(),
            FLOATS[x.dtype],
            x.numel(),
            *(result.data_ptr() for result in results),
            block_size=block_size,
            stochastic=rounding == "stochastic",
            paper=mode == "paper",
            random=random_stream(seed, 0 if step is None else step, stream, offset),
            threads=threads(),
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
    with dense(out) as (result,):
        kernels().dequantize_int8(
            codes.data_ptr(),
            scales.data_ptr(),
            zero_points.data_ptr(),
            codes.numel(),
            result.data_ptr(),
            FLOATS[dtype],
            block_size=block_size,
            threads=threads(),
        )
