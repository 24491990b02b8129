"""Moving averages kept in 8-bit blocks: restore, average, quantize in one pass over memory."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .._schema.quantize import require_block_size
from ._arguments import random_arguments, random_arguments_foreach


def ema_int8_(
    codes: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    x: Tensor,
    *,
    beta: float,
    seed: int,
    step: int | Tensor,
    stream: int,
    offset: int = 0,
    block_size: int = 256,
    out: Tensor | None = None,
) -> Tensor:  # x's shape
    """Average into an affine 8-bit tensor in place and return the average before it was quantized.

        m = beta·(codes - zero_points)·scales + (1 - beta)·x
        codes, scales, zero_points ← quantize_int8(m), stochastic

    Args:
        codes: uint8, of x's shape. Overwritten.
        scales: float32, one for each block. Overwritten.
        zero_points: uint8, one for each block. Overwritten.
        x: float32, bfloat16 or float16, any strides. Not modified.
        beta: Weight of the old average, 0 ≤ beta < 1.
        seed: 64-bit key of the generator.
        step: Number of the optimizer's step; a 0-d tensor is read on its device.
        stream: Number of the tensor.
        offset: Index of x's first element in the whole tensor.
        block_size: Elements a block: a multiple of 8 from 8 to 4096.
        out: Where the average goes: float32, x's shape, no memory in common with the other tensors.

    Returns:
        The average m in float32, or ``out``.

    Raises:
        ValueError: Shapes or devices do not fit, an argument is out of its range, written tensors share
            memory, or a tensor requires grad in grad mode.
        TypeError: A tensor has another dtype.

    Numerics:
        Bit-identical on all backends where no intermediate value is subnormal: both products and the sum are
        rounded, nothing is fused; 1 - beta is subtracted in float64. NaN or Inf in x poisons its block for
        good.

    Source:
        The Clean paper, appendix B. Reference: python_ref/quantize.py.
    """
    require_block_size("ema_int8_", block_size)
    random = random_arguments("ema_int8_", seed=seed, step=step, stream=stream, offset=offset)
    options = {"beta": beta, "block_size": block_size, **random}
    if out is None:
        return torch.ops.kpop.ema_int8_(codes, scales, zero_points, x, **options)
    torch.ops.kpop.ema_int8_.out(codes, scales, zero_points, x, **options, out=out)
    return out


def ema_sq_dynamic8_(
    codes: Tensor,
    absmax: Tensor,
    x: Tensor,
    *,
    beta: float,
    block_size: int = 256,
    out: Tensor | None = None,
) -> Tensor:  # x's shape
    """Average squares into an 8-bit tensor on the unsigned dynamic map, in place, and return the average.

        v = beta·map[codes]·absmax + ((1 - beta)·x)·x
        codes, absmax ← quantize_dynamic8(v)

    Args:
        codes: uint8, of x's shape. Overwritten.
        absmax: float32, one for each block. Overwritten.
        x: float32, bfloat16 or float16, any strides. Not modified.
        beta: Weight of the old average, 0 ≤ beta < 1.
        block_size: Elements a block: a multiple of 8 from 8 to 4096.
        out: Where the average goes: float32, x's shape, no memory in common with the other tensors.

    Returns:
        The average v in float32 before it was quantized, or ``out``.

    Raises:
        ValueError: Shapes or devices do not fit, an argument is out of its range, written tensors share
            memory, or a tensor requires grad in grad mode.
        TypeError: A tensor has another dtype.

    Numerics:
        Bit-identical on all backends where no intermediate value is subnormal (x² is below |x| of about 1e-19):
        every product and sum is rounded, nothing is fused. NaN or Inf in x poisons its block for good.

    Source:
        The Clean paper, appendix B. Reference: python_ref/quantize.py.
    """
    require_block_size("ema_sq_dynamic8_", block_size)
    if out is None:
        return torch.ops.kpop.ema_sq_dynamic8_(codes, absmax, x, beta=beta, block_size=block_size)
    torch.ops.kpop.ema_sq_dynamic8_.out(codes, absmax, x, beta=beta, block_size=block_size, out=out)
    return out


def ema_int8_foreach_(
    codes: Sequence[Tensor],
    scales: Sequence[Tensor],
    zero_points: Sequence[Tensor],
    xs: Sequence[Tensor],
    *,
    beta: float,
    seed: int,
    step: int | Tensor | Sequence[int | Tensor],
    stream: int | Sequence[int],
    offset: int | Sequence[int] = 0,
    block_size: int = 256,
) -> list[Tensor]:
    """Average into every tensor of a list as `ema_int8_` does, in one call.

    Args:
        codes: Codes of each average. Overwritten.
        scales: Scales of each average. Overwritten.
        zero_points: Zero points of each average. Overwritten.
        xs: What is averaged, all on one device.
        beta: As in `ema_int8_`.
        seed: As in `ema_int8_`.
        step: One number a tensor, or one for all.
        stream: One stream a tensor, or the first of consecutive ones.
        offset: One offset a tensor, or one for all.
        block_size: As in `ema_int8_`.

    Returns:
        The averages in float32, in order.

    Raises:
        ValueError: As `ema_int8_`, naming the item, or lists differ in length.
        TypeError: As `ema_int8_`, naming the item.
    """
    op = "ema_int8_foreach_"
    require_block_size(op, block_size)
    random = random_arguments_foreach(op, len(xs), seed=seed, step=step, stream=stream, offset=offset)
    if not xs:
        return []
    lists = (list(codes), list(scales), list(zero_points), list(xs))
    return torch.ops.kpop.ema_int8_foreach_(*lists, beta=beta, block_size=block_size, **random)


def ema_sq_dynamic8_foreach_(
    codes: Sequence[Tensor],
    absmax: Sequence[Tensor],
    xs: Sequence[Tensor],
    *,
    beta: float,
    block_size: int = 256,
) -> list[Tensor]:
    """Average squares into every tensor of a list as `ema_sq_dynamic8_` does, in one call.

    Args:
        codes: Codes of each average. Overwritten.
        absmax: Absolute maxima of each average. Overwritten.
        xs: What is squared and averaged, all on one device.
        beta: As in `ema_sq_dynamic8_`.
        block_size: As in `ema_sq_dynamic8_`.

    Returns:
        The averages in float32, in order.

    Raises:
        ValueError: As `ema_sq_dynamic8_`, naming the item, or lists differ in length.
        TypeError: As `ema_sq_dynamic8_`, naming the item.
    """
    require_block_size("ema_sq_dynamic8_foreach_", block_size)
    if not xs:
        return []
    lists = (list(codes), list(absmax), list(xs))
    return torch.ops.kpop.ema_sq_dynamic8_foreach_(*lists, beta=beta, block_size=block_size)
