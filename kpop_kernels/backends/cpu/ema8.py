"""Moving averages kept in 8-bit blocks, in one C++ pass."""

from collections.abc import Sequence

from torch import Tensor

from .._dense import dense_lists
from .._items import block_items
from .native import by_step, kernels, threads


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
    """Write m = beta·m + (1 - beta)·x to out and round it stochastically into the blocks."""
    values = [item.contiguous() for item in x]
    with dense_lists(codes, scales, zero_points, out) as (*blocks, means):
        items = block_items(x=values, out=means, affine=blocks, places=(stream, offset))
        for members, key in by_step(items, seed, step):
            kernels().ema_int8(
                members,
                block_size=block_size,
                beta=beta,
                one_minus_beta=1 - beta,
                **key,
                threads=threads(),
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
    """Write v = beta·v + ((1 - beta)·x)·x to out and its nearest codes into the blocks."""
    values = [item.contiguous() for item in x]
    with dense_lists(codes, absmax, out) as (*blocks, means):
        items = block_items(x=values, out=means, dynamic=blocks)
        kernels().ema_sq_dynamic8(
            items, block_size=block_size, beta=beta, one_minus_beta=1 - beta, threads=threads()
        )
