"""8-bit blocks on an affine grid, rounded stochastically or to nearest."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .._schema.quantize import require_block_size
from ._arguments import output_arguments, random_arguments, random_arguments_foreach

Rounding = Literal["stochastic", "nearest"]
Mode = Literal["unbiased", "paper"]


class QuantizedInt8(NamedTuple):
    """A tensor in 8-bit blocks: (codes - zero_points)·scales.

    Attributes:
        codes: uint8, of the tensor's shape.
        scales: float32, one for each block of the flattened tensor.
        zero_points: uint8, one for each block.
    """

    codes: Tensor
    scales: Tensor
    zero_points: Tensor


def quantize_int8(
    x: Tensor,
    *,
    block_size: int = 256,
    rounding: Rounding = "stochastic",
    seed: int = 0,
    step: int | Tensor = 0,
    stream: int = 0,
    offset: int = 0,
    mode: Mode = "unbiased",
    out: QuantizedInt8 | tuple[Tensor, Tensor, Tensor] | None = None,
) -> QuantizedInt8:
    """Quantize a tensor block by block to bytes on an affine grid that holds 0 exactly.

    For each block of the flattened tensor (C order, the last block may be short), with 0 in its range:

        s = (hi - lo) / 254,   z = ⌈-lo / s⌉
        q = ⌊x/s⌋ + z + [u < frac(x/s)]   (stochastic, u uniform on a grid of 2⁻¹⁶)
        q = ⌊x/s + ½⌋ + z                  (nearest)

    The random numbers are a function of (seed, step, stream, offset + index in the flattened tensor) alone:
    they depend neither on torch's generators nor on backend, block size or sharding.

    Args:
        x: float32, bfloat16 or float16, any strides. Not modified.
        block_size: Elements a block: a multiple of 8 from 8 to 4096.
        rounding: How codes are rounded.
        seed: 64-bit key of the generator, 0 ≤ seed < 2⁶⁴.
        step: Number of the optimizer's step, 0 ≤ step < 2³²; a 0-d tensor is read on its device.
        stream: Number of the tensor, 0 ≤ stream < 2³²: different streams round independently.
        offset: Index of x's first element in the whole tensor that x is a shard of. Shards that start at
            multiples of block_size give the codes of the whole.
        mode: "paper" is the published s = (hi - lo)/255, z = ⌊-lo/s + ½⌋. It clips the extremes of a block by
            up to half a step and so is biased there.
        out: Codes, scales and zero points to write to, without memory in common with x.

    Returns:
        Codes, scales and zero points; ``out`` if it was given.

    Raises:
        ValueError: An argument is out of its range, ``out`` does not fit or shares memory with x, or x
            requires grad in grad mode.
        TypeError: x has another dtype.

    Numerics:
        Bit-identical on all backends. |x̂ - x| < s stochastic, ≤ s/2 nearest (up to float32's rounding); the
        stochastic mean is x to within 2⁻¹⁶·s. Subnormal values count as 0. A block of zeros has s = z = q = 0.
        A block with NaN, Inf or a range beyond float32 has s = NaN, z = q = 0 and so restores to NaN; other
        blocks do not notice.

    Source:
        The Clean paper, eqs. 17–22; Salmon et al., Parallel Random Numbers: As Easy as 1, 2,
        3 (2011). Reference: python_ref/quantize.py.
    """
    require_block_size("quantize_int8", block_size)
    random = random_arguments("quantize_int8", seed=seed, step=step, stream=stream, offset=offset)
    options = {"block_size": block_size, "rounding": rounding, "mode": mode, **random}
    if out is None:
        return QuantizedInt8(*torch.ops.kpop.quantize_int8(x, **options))
    torch.ops.kpop.quantize_int8.out(x, **options, **output_arguments("quantize_int8", out, 3))
    return QuantizedInt8(*out)


def dequantize_int8(
    codes: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    *,
    block_size: int = 256,
    dtype: torch.dtype = torch.float32,
    out: Tensor | None = None,
) -> Tensor:  # codes' shape
    """Restore a tensor from bytes on an affine grid.

        x̂ = (q - z)·s

    Args:
        codes: uint8, any shape and strides. Not modified.
        scales: float32, one for each block of the flattened codes.
        zero_points: uint8, one for each block.
        block_size: Elements a block, as it was quantized.
        dtype: float32, bfloat16 or float16.
        out: Where the result goes: codes' shape, ``dtype``, no memory in common with the inputs.

    Returns:
        A new tensor, or ``out``.

    Raises:
        ValueError: Shapes or devices do not fit, block_size or dtype is not allowed, or ``out`` does not fit.
        TypeError: Codes, scales or zero points have another dtype.

    Numerics:
        Bit-identical on all backends: the difference is exact, the product is rounded once to float32 and,
        for the other dtypes, once more. Code z gives +0.

    Source:
        Reference: python_ref/quantize.py.
    """
    require_block_size("dequantize_int8", block_size)
    if out is None:
        return torch.ops.kpop.dequantize_int8(codes, scales, zero_points, block_size=block_size, dtype=dtype)
    torch.ops.kpop.dequantize_int8.out(
        codes, scales, zero_points, block_size=block_size, dtype=dtype, out=out
    )
    return out


def quantize_int8_foreach(
    xs: Sequence[Tensor],
    *,
    block_size: int = 256,
    rounding: Rounding = "stochastic",
    seed: int = 0,
    step: int | Tensor | Sequence[int | Tensor] = 0,
    stream: int | Sequence[int] = 0,
    offset: int | Sequence[int] = 0,
    mode: Mode = "unbiased",
) -> list[QuantizedInt8]:
    """Quantize every tensor of a list as `quantize_int8` does, in one call.

    Args:
        xs: Tensors of any shapes on one device.
        block_size: As in `quantize_int8`.
        rounding: As in `quantize_int8`.
        seed: As in `quantize_int8`.
        step: One number a tensor, or one for all.
        stream: One stream a tensor, or the first of consecutive ones.
        offset: One offset a tensor, or one for all.
        mode: As in `quantize_int8`.

    Returns:
        What `quantize_int8` returns for each tensor, in order.

    Raises:
        ValueError: As `quantize_int8`, naming the item, or lists differ in length.
        TypeError: As `quantize_int8`, naming the item.
    """
    op = "quantize_int8_foreach"
    require_block_size(op, block_size)
    random = random_arguments_foreach(op, len(xs), seed=seed, step=step, stream=stream, offset=offset)
    if not xs:
        return []
    options = {"block_size": block_size, "rounding": rounding, "mode": mode, **random}
    results = torch.ops.kpop.quantize_int8_foreach(list(xs), **options)
    return [QuantizedInt8(*item) for item in zip(*results, strict=True)]


def dequantize_int8_foreach(
    codes: Sequence[Tensor],
    scales: Sequence[Tensor],
    zero_points: Sequence[Tensor],
    *,
    block_size: int = 256,
    dtype: torch.dtype = torch.float32,
) -> list[Tensor]:
    """Restore every tensor of a list as `dequantize_int8` does, in one call.

    Args:
        codes: Codes of each tensor, all on one device.
        scales: Scales of each tensor.
        zero_points: Zero points of each tensor.
        block_size: As in `dequantize_int8`.
        dtype: As in `dequantize_int8`.

    Returns:
        The restored tensors, in order.

    Raises:
        ValueError: As `dequantize_int8`, naming the item, or lists differ in length.
        TypeError: As `dequantize_int8`, naming the item.
    """
    require_block_size("dequantize_int8_foreach", block_size)
    if not codes:
        return []
    lists = (list(codes), list(scales), list(zero_points))
    return torch.ops.kpop.dequantize_int8_foreach(*lists, block_size=block_size, dtype=dtype)
