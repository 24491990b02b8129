"""Stochastic rounding of float32 to bfloat16 in CUDA C++."""

import torch
from torch import Tensor

from .native import Number, dense, kernels, random_stream


def stochastic_round_bf16(
    x: Tensor, *, seed: int, step: Tensor, stream: int, offset: int = 0, out: Tensor
) -> None:
    """Add 16 random bits below the bits that stay, and cut."""
    x = x.contiguous()
    number = Number(step, torch.int64, x.device)
    with kernels(x.device) as cuda, dense(out) as (result,):
        cuda.stochastic_round(
            x.data_ptr(),
            x.numel(),
            result.data_ptr(),
            random=random_stream(seed, number, stream, offset),
            step=number.address,
        )
