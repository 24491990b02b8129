"""Block-wise absolute maximum and int8 quantization, rounded to nearest."""

import triton
import triton.language as tl
from torch import Tensor

from ...tuning import BLOCKWISE, BlockwiseConfig
from .launch import launch
from .memory import load_as_float32, store_rounded

INFINITY_BITS = tl.constexpr(0x7F800000)
SMALLEST_NORMAL_BITS = tl.constexpr(0x00800000)
SMALLEST_NORMAL = tl.constexpr(2.0**-126)


def absmax_quantize(
    x: Tensor,
    *,
    block_size: int,
    out: tuple[Tensor, Tensor],
    config: BlockwiseConfig = BLOCKWISE,
) -> None:
    """Write the int8 codes of x and the float32 scale of each of its blocks.

    For each block of ``block_size`` neighbours in row-major order, the last may be short:

        scale = max|x| / 127        inv = 1 / scale        code = clamp(floor(x·inv + 1/2), -127, 127)

    in float32, each operation rounded to nearest even and none contracted. |x| < 2⁻¹²⁶ counts as 0. A scale
    below 2⁻¹²⁶ is 0, and a block with NaN or Inf has scale NaN; both have codes 0.

    Args:
        x: float32, bfloat16 or float16; any strides.
        block_size: Power of two, at most ``config.elements``.
        out: Contiguous int8 codes of x's size, and contiguous float32 scales, one a block.
        config: How blocks are shared out.

    Raises:
        ValueError: The block size does not fit.
    """
    codes, scales = out
    n = x.numel()
    blocks = config.blocks(block_size)
    grid = (triton.cdiv(n, config.elements),)
    launch(
        absmax_quantize_kernel,
        grid,
        (x.contiguous(), codes, scales, n),
        config,
        BLOCKS=blocks,
        BLOCK_SIZE=block_size,
    )


#        0    1    ...     BLOCK_SIZE      A program is BLOCKS blocks of BLOCK_SIZE neighbours. A thread holds
#   0  [ x x | x x | ...       ] -> max    pieces of 16 bytes of a block's row; the maximum goes through the
#   1  [ x x | x x | ...       ] -> max    row's threads by shuffles.
#  ...                                     Bound by memory bandwidth: 5 bytes a float32 element.
@triton.jit
def absmax_quantize_kernel(x_ptr, codes_ptr, scales_ptr, n, BLOCKS: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """Quantize BLOCKS blocks."""
    # 64-bit start, 32-bit offsets from there: arrays may have more than 2³¹ elements, a program has few.
    first = tl.program_id(0).to(tl.int64) * (BLOCKS * BLOCK_SIZE)
    blocks = tl.arange(0, BLOCKS)
    offsets = blocks[:, None] * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)[None, :]
    inside = offsets < n - first

    x = load_as_float32(x_ptr + first + offsets, inside)
    # Magnitudes are compared as integers: the order is the same, and NaN is above infinity.
    magnitude = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    x = tl.where(magnitude < SMALLEST_NORMAL_BITS, 0.0, x)
    absmax = tl.max(magnitude, axis=1)

    finite = absmax < INFINITY_BITS
    scale = tl.div_rn(absmax.to(tl.float32, bitcast=True), 127.0)
    usable = finite & (scale >= SMALLEST_NORMAL)
    inv = tl.div_rn(1.0, tl.where(usable, scale, 1.0))
    codes = tl.floor(x * inv[:, None] + 0.5)
    codes = tl.where(usable[:, None], tl.minimum(tl.maximum(codes, -127.0), 127.0), 0.0)
    scale = tl.where(finite, tl.where(usable, scale, 0.0), float("nan"))

    store_rounded(codes_ptr + first + offsets, codes, inside)
    store_rounded(scales_ptr + first // BLOCK_SIZE + blocks, scale, blocks * BLOCK_SIZE < n - first)
