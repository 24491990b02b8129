"""Moving averages kept in 8-bit blocks, in aten."""

import torch
from torch import Tensor

from .dynamic8 import dequantize_dynamic8, quantize_dynamic8
from .quantize_int8 import dequantize_int8, quantize_int8


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
    dequantize_int8(codes, scales, zero_points, block_size=block_size, out=out)
    out.mul_(beta).add_(x.to(torch.float32) * (1 - beta))
    quantize_int8(
        out,
        block_size=block_size,
        seed=seed,
        step=step,
        stream=stream,
        offset=offset,
        out=(codes, scales, zero_points),
    )


def ema_sq_dynamic8_(
    codes: Tensor, absmax: Tensor, x: Tensor, *, beta: float, block_size: int = 256, out: Tensor
) -> None:
    """Write v = beta·v + ((1 - beta)·x)·x to out and its nearest codes into the blocks."""
    dequantize_dynamic8(codes, absmax, block_size=block_size, out=out)
    x = x.to(torch.float32)
    out.mul_(beta).add_((x * (1 - beta)).mul_(x))
    quantize_dynamic8(out, block_size=block_size, out=(codes, absmax))
