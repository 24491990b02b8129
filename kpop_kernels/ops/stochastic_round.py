"""Stochastic rounding of weights to bfloat16."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ._arguments import random_arguments, random_arguments_foreach


def stochastic_round_bf16(
    x: Tensor,
    *,
    seed: int,
    step: int | Tensor,
    stream: int,
    offset: int = 0,
    out: Tensor | None = None,
) -> Tensor:  # x's shape
    """Round float32 to bfloat16, up or down at random, so that the mean is x.

    16 random bits are added below the bits that stay, which are then cut. The random numbers are those of
    `quantize_int8`, a function of (seed, step, stream, offset + index) alone.

    Args:
        x: float32, any strides. Not modified.
        seed: 64-bit key of the generator, 0 ≤ seed < 2⁶⁴.
        step: Number of the optimizer's step, 0 ≤ step < 2³²; a 0-d tensor is read on its device.
        stream: Number of the tensor, 0 ≤ stream < 2³².
        offset: Index of x's first element in the whole tensor that x is a shard of.
        out: Where the result goes: bfloat16, x's shape, no memory in common with x.

    Returns:
        A new tensor, or ``out``.

    Raises:
        ValueError: An argument is out of its range, ``out`` does not fit or shares memory with x, or x
            requires grad in grad mode.
        TypeError: x is not float32.

    Numerics:
        Bit-identical on all backends and exactly unbiased. NaN stays NaN, Inf stays Inf; finite values beyond
        the largest bfloat16 become it, never Inf.

    Source:
        Reference: python_ref/quantize.py.
    """
    random = random_arguments("stochastic_round_bf16", seed=seed, step=step, stream=stream, offset=offset)
    if out is None:
        return torch.ops.kpop.stochastic_round_bf16(x, **random)
    torch.ops.kpop.stochastic_round_bf16.out(x, **random, out=out)
    return out


def stochastic_round_bf16_foreach(
    xs: Sequence[Tensor],
    *,
    seed: int,
    step: int | Tensor | Sequence[int | Tensor],
    stream: int | Sequence[int],
    offset: int | Sequence[int] = 0,
) -> list[Tensor]:
    """Round every tensor of a list as `stochastic_round_bf16` does, in one call.

    Args:
        xs: float32 tensors on one device.
        seed: As in `stochastic_round_bf16`.
        step: One number a tensor, or one for all.
        stream: One stream a tensor, or the first of consecutive ones.
        offset: One offset a tensor, or one for all.

    Returns:
        The rounded tensors, in order.

    Raises:
        ValueError: As `stochastic_round_bf16`, naming the item, or lists differ in length.
        TypeError: As `stochastic_round_bf16`, naming the item.
    """
    op = "stochastic_round_bf16_foreach"
    random = random_arguments_foreach(op, len(xs), seed=seed, step=step, stream=stream, offset=offset)
    return torch.ops.kpop.stochastic_round_bf16_foreach(list(xs), **random) if xs else []
