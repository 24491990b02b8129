"""Stochastic rounding of float32 to bfloat16 on Apple GPUs."""

from torch import Tensor

from .._dense import dense
from ._blocks import RandomStream, bound_step, launch_over_blocks


def stochastic_round_bf16(
    x: Tensor, *, seed: int, step: Tensor, stream: int, offset: int = 0, out: Tensor
) -> None:
    """Add 16 random bits below the bits that stay, and cut."""
    with dense(out) as (result,):
        launch_over_blocks(
            "stochastic_round",
            "stochastic_round_bf16",
            (x.contiguous(), result),
            (),
            bound_step(step, x.device),
            block_size=8,
            random=RandomStream(seed, stream, offset),
        )
