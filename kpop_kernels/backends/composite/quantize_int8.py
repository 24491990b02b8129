"""The affine grid of 8-bit blocks in aten, every operation in the order that the bits are promised in."""

import torch
from torch import Tensor

from .blocks import SMALLEST_NORMAL, each, flush, from_blocks, to_blocks
from .philox import random16


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
    blocks = to_blocks(flush(x.reshape(-1).to(torch.float32)), block_size)
    scale, inverse, zero_point = _affine_grid(blocks, mode)
    y = blocks * inverse[:, None]
    if rounding == "stochastic":
        step = torch.zeros((), dtype=torch.int64) if step is None else step
        random = random16(x.numel(), x.device, seed=seed, step=step, stream=stream, offset=offset)
        k = _round_stochastic(y, to_blocks(random, block_size))
    else:
        k = torch.floor(y + 0.5).to(torch.int64)
    codes = (k + zero_point[:, None]).clamp(0, 255).masked_fill(~(scale > 0)[:, None], 0)
    for result, value in zip(out, (from_blocks(codes, x), scale, zero_point), strict=True):
        result.copy_(value)


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
    steps = codes.to(torch.int32) - each(zero_points.to(torch.int32), codes, block_size)
    out.copy_(steps.to(torch.float32) * each(scales, codes, block_size))


def _affine_grid(blocks: Tensor, mode: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return scale, its reciprocal and zero point of each block."""
    lo, hi = blocks.clamp_max(0.0).amin(1), blocks.clamp_min(0.0).amax(1)
    # A tensor as divisor: division by a number is a multiplication by its reciprocal on some devices.
    scale = (hi - lo) / torch.full_like(hi, 254.0 if mode == "unbiased" else 255.0)
    poisoned = ~scale.isfinite()
    empty = scale < SMALLEST_NORMAL
    inverse = torch.where(poisoned | empty, 0.0, scale.reciprocal())
    ratio = flush(torch.where(poisoned, 0.0, -lo) * inverse)
    zero_point = torch.ceil(ratio) if mode == "unbiased" else torch.floor(ratio + 0.5)
    scale = scale.masked_fill(empty, 0.0).masked_fill(poisoned, float("nan"))
    return scale, inverse, zero_point.clamp_max(255.0).to(torch.int64)


def _round_stochastic(y: Tensor, random: Tensor) -> Tensor:
    """Return ⌊y⌋, plus one where the random bits are below 2¹⁶ times the fraction, which may round to 1."""
    floor = torch.floor(y)
    threshold = ((y - floor) * 65536.0).to(torch.int64)
    return floor.to(torch.int64) + (random < threshold)
