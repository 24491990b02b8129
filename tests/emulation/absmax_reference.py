"""Block-wise absolute maximum and int8 codes in numpy, each step one correctly rounded float32 operation."""

import numpy as np

_SMALLEST_NORMAL = np.float32(2.0**-126)


def absmax_quantize(x: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return codes and scales of float32 values; both are 0 in a block whose scale is below 2^-126."""
    blocks = np.zeros((-(-x.size // block_size), block_size), np.float32)
    blocks.reshape(-1)[: x.size] = x.reshape(-1)
    blocks[np.abs(blocks) < _SMALLEST_NORMAL] = 0
    finite = np.isfinite(blocks).all(axis=1)
    blocks[~finite] = 0
    scales = np.abs(blocks).max(axis=1, initial=0) / np.float32(127)
    scales[scales < _SMALLEST_NORMAL] = 0
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > 0)
    codes = np.clip(np.floor(blocks * inverse[:, None] + np.float32(0.5)), -127, 127)
    scales[~finite] = np.nan
    return codes.astype(np.int8).reshape(-1)[: x.size].reshape(x.shape), scales
