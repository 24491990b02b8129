"""Stochastic rounding of float32 to bfloat16 in C++."""

from collections.abc import Sequence

from torch import Tensor

from .._dense import dense_lists
from .._items import block_items
from .native import by_step, kernels, threads


def stochastic_round_bf16_foreach(
    x: Sequence[Tensor],
    *,
    seed: int,
    step: Sequence[Tensor],
    stream: Sequence[int],
    offset: Sequence[int],
    out: Sequence[Tensor],
) -> None:
    """Add 16 random bits below the bits that stay, and cut."""
    values = [item.contiguous() for item in x]
    with dense_lists(out) as (results,):
        items = block_items(x=values, out=results, places=(stream, offset))
        for members, key in by_step(items, seed, step):
            kernels().stochastic_round(members, **key, threads=threads())
