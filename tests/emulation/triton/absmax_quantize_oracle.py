"""Block-wise absolute maximum quantization in numpy: one block at a time, every operation in float32."""

import numpy as np

SMALLEST_NORMAL = np.float32(2.0**-126)


def absmax_quantize(x: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the int8 codes and float32 scales of a flat float32 array."""
    codes = np.zeros(x.size, np.int8)
    scales = np.zeros(-(-x.size // block_size), np.float32)
    for block in range(scales.size):
        where = slice(block * block_size, (block + 1) * block_size)
        codes[where], scales[block] = _quantize_block(x[where])
    return codes, scales


def _quantize_block(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    zeros = np.zeros(x.size, np.int8)
    if not np.isfinite(x).all():
        return zeros, np.float32(np.nan)
    x = np.where(np.abs(x) < SMALLEST_NORMAL, np.float32(0), x)
    scale = np.abs(x).max() / np.float32(127)
    if scale < SMALLEST_NORMAL:
        return zeros, np.float32(0)
    inv = np.float32(1) / scale
    return np.clip(np.floor(x * inv + np.float32(0.5)), -127, 127).astype(np.int8), scale
