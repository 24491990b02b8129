"""Affine 8-bit blocks on Apple GPUs."""

import torch
from torch import Tensor

from .._dense import dense
from ._blocks import NAMES, RandomStream, bound_step, launch_over_blocks

_STEPS = {"unbiased": 254, "paper": 255}


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
    with dense(*out) as (codes, scales, zero_points):
        launch_over_blocks(
            "quantize_int8",
            f"quantize_int8_{NAMES[x.dtype]}",
            (x.contiguous(), codes),
            (scales, zero_points),
            bound_step(step, x.device),
            block_size=block_size,
            random=RandomStream(seed, stream, offset),
            flags=(_STEPS[mode], rounding == "nearest"),
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
    with dense(out) as (result,):
        launch_over_blocks(
            "quantize_int8",
            f"dequantize_int8_{NAMES[dtype]}",
            (codes.contiguous(), result),
            (scales.contiguous(), zero_points.contiguous()),
            block_size=block_size,
        )
