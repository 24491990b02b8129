"""Block-wise absolute maximum and int8 quantization with nearest rounding on Apple GPUs."""

import torch
from torch import Tensor

from kpop_kernels.backends.metal import _shader

BLOCK_SIZES = (32, 64, 128, 256, 512, 1024, 2048)

_MAX_THREADS = 256
_DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}

# Grid positions have 32 bits, and a dispatch that takes long is stopped while a display is attached.
_ELEMENTS_PER_LAUNCH = 2**28


def absmax_quantize(
    x: Tensor,
    *,
    block_size: int,
) -> tuple[Tensor, Tensor]:
    """Quantize blocks of consecutive elements to int8 by their absolute maximum.

    For each block:  scale = max |x| / 127;  code = clamp(floor(x · (1 / scale) + 1/2), −127, 127).
    Each quotient, product and sum is a correctly rounded float32; |x| < 2⁻¹²⁶ counts as 0.

    Args:
        x: float32, float16 or bfloat16, of any shape; the blocks run over its elements in row-major order.
        block_size: Elements of a block, one of ``BLOCK_SIZES``. The last block may be short.

    Returns:
        The codes, int8 in the shape of x, and the scales, float32 and one for each block. A block with NaN or
        infinity has the scale NaN and codes 0; one whose scale is below 2⁻¹²⁶ has the scale 0 and codes 0.

    Raises:
        ValueError: block_size or the dtype of x is not supported.
    """
    if block_size not in BLOCK_SIZES:
        raise ValueError(f"block_size must be one of {', '.join(map(str, BLOCK_SIZES))}, not {block_size}")
    if x.dtype not in _DTYPES:
        raise ValueError(f"x must be float32, float16 or bfloat16, not {x.dtype}")
    flat = x.contiguous().view(-1)
    codes = torch.empty(flat.shape, dtype=torch.int8, device=x.device)
    scales = torch.empty(-(-flat.numel() // block_size), dtype=torch.float32, device=x.device)
    quantize = _shader.kernel("absmax_quantize", f"absmax_quantize_{_DTYPES[x.dtype]}")
    group_size = min(block_size, _MAX_THREADS)
    for start in range(0, flat.numel(), _ELEMENTS_PER_LAUNCH):
        count = min(flat.numel() - start, _ELEMENTS_PER_LAUNCH)
        first_block, blocks = start // block_size, -(-count // block_size)
        quantize(
            flat[start : start + count],
            codes[start : start + count],
            scales[first_block : first_block + blocks].view(torch.int32),
            [count, block_size],
            threads=blocks * group_size,
            group_size=group_size,
        )
    return codes.view(x.shape), scales
