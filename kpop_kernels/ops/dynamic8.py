"""8-bit blocks on the dynamic map: seven decades of magnitude in one byte."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .._schema.quantize import require_block_size
from ._arguments import output_arguments


class QuantizedDynamic8(NamedTuple):
    """A tensor in 8-bit blocks: map[codes]·absmax.

    Attributes:
        codes: uint8, of the tensor's shape.
        absmax: float32, one for each block of the flattened tensor.
    """

    codes: Tensor
    absmax: Tensor


def quantize_dynamic8(
    x: Tensor,
    *,
    block_size: int = 256,
    signed: bool = False,
    out: QuantizedDynamic8 | tuple[Tensor, Tensor] | None = None,
) -> QuantizedDynamic8:
    """Quantize a tensor block by block to the nearest of the dynamic map's 256 values.

        absmax = max |x|,   q = argmin_q |map[q] - x·(1/absmax)|   for each block

    The map spans 10⁻⁷ to 1 with a constant number of values a decade growing by powers of two, 0 and 1
    (unsigned), or half as many and their negatives (signed).

    Args:
        x: float32, bfloat16 or float16, any strides. Not modified. Unsigned, negative values become 0.
        block_size: Elements a block: a multiple of 8 from 8 to 4096.
        signed: Use the map with negative values.
        out: Codes and absmax to write to, without memory in common with x.

    Returns:
        Codes and absmax; ``out`` if it was given.

    Raises:
        ValueError: block_size is not allowed, ``out`` does not fit or shares memory with x, or x requires
            grad in grad mode.
        TypeError: x has another dtype.

    Numerics:
        Bit-identical on all backends. The search is exact: the code is the number of midpoints below the
        value, so the lower of two equally near values wins. Subnormal values count as 0. A block of zeros has
        absmax = 0, a block with NaN or Inf has absmax = NaN and restores to NaN; both hold the code of 0.

    Source:
        Dettmers et al., 8-bit Optimizers via Block-wise Quantization (2021). Reference:
        python_ref/quantize.py.
    """
    require_block_size("quantize_dynamic8", block_size)
    options = {"block_size": block_size, "signed": signed}
    if out is None:
        return QuantizedDynamic8(*torch.ops.kpop.quantize_dynamic8(x, **options))
    torch.ops.kpop.quantize_dynamic8.out(x, **options, **output_arguments("quantize_dynamic8", out, 2))
    return QuantizedDynamic8(*out)


def dequantize_dynamic8(
    codes: Tensor,
    absmax: Tensor,
    *,
    block_size: int = 256,
    signed: bool = False,
    dtype: torch.dtype = torch.float32,
    out: Tensor | None = None,
) -> Tensor:  # codes' shape
    """Restore a tensor from bytes on the dynamic map.

        x̂ = map[q]·absmax

    Args:
        codes: uint8, any shape and strides. Not modified.
        absmax: float32, one for each block of the flattened codes.
        block_size: Elements a block, as it was quantized.
        signed: Whether the map has negative values, as it was quantized.
        dtype: float32, bfloat16 or float16.
        out: Where the result goes: codes' shape, ``dtype``, no memory in common with the inputs.

    Returns:
        A new tensor, or ``out``.

    Raises:
        ValueError: Shapes or devices do not fit, block_size or dtype is not allowed, or ``out`` does not fit.
        TypeError: Codes or absmax have another dtype.

    Numerics:
        Bit-identical on all backends: one rounding to float32 and, for the other dtypes, one more. Products
        below 2⁻¹²⁶ are 0.

    Source:
        Reference: python_ref/quantize.py.
    """
    require_block_size("dequantize_dynamic8", block_size)
    options = {"block_size": block_size, "signed": signed, "dtype": dtype}
    if out is None:
        return torch.ops.kpop.dequantize_dynamic8(codes, absmax, **options)
    torch.ops.kpop.dequantize_dynamic8.out(codes, absmax, **options, out=out)
    return out


def quantize_dynamic8_foreach(
    xs: Sequence[Tensor], *, block_size: int = 256, signed: bool = False
) -> list[QuantizedDynamic8]:
    """Quantize every tensor of a list as `quantize_dynamic8` does, in one call.

    Args:
        xs: Tensors of any shapes on one device.
        block_size: As in `quantize_dynamic8`.
        signed: As in `quantize_dynamic8`.

    Returns:
        What `quantize_dynamic8` returns for each tensor, in order.

    Raises:
        ValueError: As `quantize_dynamic8`, naming the item.
        TypeError: As `quantize_dynamic8`, naming the item.
    """
    require_block_size("quantize_dynamic8_foreach", block_size)
    if not xs:
        return []
    results = torch.ops.kpop.quantize_dynamic8_foreach(list(xs), block_size=block_size, signed=signed)
    return [QuantizedDynamic8(*item) for item in zip(*results, strict=True)]


def dequantize_dynamic8_foreach(
    codes: Sequence[Tensor],
    absmax: Sequence[Tensor],
    *,
    block_size: int = 256,
    signed: bool = False,
    dtype: torch.dtype = torch.float32,
) -> list[Tensor]:
    """Restore every tensor of a list as `dequantize_dynamic8` does, in one call.

    Args:
        codes: Codes of each tensor, all on one device.
        absmax: Absolute maxima of each tensor.
        block_size: As in `dequantize_dynamic8`.
        signed: As in `dequantize_dynamic8`.
        dtype: As in `dequantize_dynamic8`.

    Returns:
        The restored tensors, in order.

    Raises:
        ValueError: As `dequantize_dynamic8`, naming the item, or lists differ in length.
        TypeError: As `dequantize_dynamic8`, naming the item.
    """
    require_block_size("dequantize_dynamic8_foreach", block_size)
    if not codes:
        return []
    options = {"block_size": block_size, "signed": signed, "dtype": dtype}
    return torch.ops.kpop.dequantize_dynamic8_foreach(list(codes), list(absmax), **options)
