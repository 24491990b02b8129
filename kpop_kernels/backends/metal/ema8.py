"""Moving averages kept in 8-bit blocks, in one pass on Apple GPUs."""

from torch import Tensor

from ...codebooks import dynamic_map
from .._dense import dense
from ._blocks import NAMES, RandomStream, bound_step, launch_over_blocks
from ._codebook import dynamic_buckets


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
    with dense(codes, scales, zero_points, out) as (c, s, z, m):
        launch_over_blocks(
            "ema8",
            f"ema_int8_{NAMES[x.dtype]}",
            (x.contiguous(), c, m),
            (s, z),
            [float(beta), 1.0 - beta],
            bound_step(step, x.device),
            block_size=block_size,
            random=RandomStream(seed, stream, offset),
        )


def ema_sq_dynamic8_(
    codes: Tensor, absmax: Tensor, x: Tensor, *, beta: float, block_size: int = 256, out: Tensor
) -> None:
    """Write v = beta·v + ((1 - beta)·x)·x to out and its nearest codes into the blocks."""
    with dense(codes, absmax, out) as (c, a, v):
        launch_over_blocks(
            "ema8",
            f"ema_sq_dynamic8_{NAMES[x.dtype]}",
            (x.contiguous(), c, v),
            (a,),
            [float(beta), 1.0 - beta],
            dynamic_map(False, x.device),
            dynamic_buckets(False, x.device),
            block_size=block_size,
        )
