"""Moving averages kept in 8-bit blocks, in one C++ pass."""

from torch import Tensor

from .._dense import dense
from .native import FLOATS, kernels, random_stream, threads


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
    with dense(codes, scales, zero_points, out) as (c, s, z, m):
        kernels().ema_int8(
            c.data_ptr(),
            s.data_ptr(),
            z.data_ptr(),
            x.data_ptr(),
            FLOATS[x.dtype],
            x.numel(),
            m.data_ptr(),
            block_size=block_size,
            beta=beta,
            one_minus_beta=1 - beta,
            random=random_stream(seed, step, stream, offset),
            threads=threads(),
        )


def ema_sq_dynamic8_(
    codes: Tensor, absmax: Tensor, x: Tensor, *, beta: float, block_size: int = 256, out: Tensor
) -> None:
    """Write v = beta·v + ((1 - beta)·x)·x to out and its nearest codes into the blocks."""
    x = x.contiguous()
    with dense(codes, absmax, out) as (c, a, v):
        kernels().ema_sq_dynamic8(
            c.data_ptr(),
            a.data_ptr(),
            x.data_ptr(),
            FLOATS[x.dtype],
            x.numel(),
            v.data_ptr(),
            block_size=block_size,
            beta=beta,
            one_minus_beta=1 - beta,
            threads=threads(),
        )
