"""Stochastic rounding of float32 to bfloat16 in C++."""

from torch import Tensor

from .._dense import dense
from .native import kernels, random_stream, threads


def stochastic_round_bf16(
    x: Tensor, *, seed: int, step: Tensor, stream: int, offset: int = 0, out: Tensor
) -> None:
    """Add 16 random bits below the bits that stay, and cut."""
    x = x.contiguous()
    with dense(out) as (result,):
        kernels().stochastic_round(
            x.data_ptr(),
            x.numel(),
            result.data_ptr(),
            random=random_stream(seed, step, stream, offset),
            threads=threads(),
        )
