"""The definition of block-wise absmax quantization in numpy, and inputs that reach its corners."""

import numpy as np

SMALLEST_NORMAL = np.float32(2.0**-126)


def absmax_quantize(x: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Quantize a flat float32 array block by block, as csrc/cuda/absmax_quantize.cuh defines it.

    Args:
        x: float32, any length; the last block may be short.
        block_size: Elements of a block.

    Returns:
        Codes, int8 like ``x``, and scales, float32, one for each block.
    """
    codes = np.zeros(x.size, np.int8)
    scales = np.zeros(-(-x.size // block_size), np.float32)
    for i in range(scales.size):
        block = x[i * block_size : (i + 1) * block_size].copy()
        block[np.abs(block) < SMALLEST_NORMAL] = 0
        absmax = np.abs(block).max()
        if not np.isfinite(absmax):
            scales[i] = np.uint32(0x7FC00000).view(np.float32)
            continue
        scale = absmax / np.float32(127)
        if scale < SMALLEST_NORMAL:
            continue
        scales[i] = scale
        rounded = np.floor(block * (np.float32(1) / scale) + np.float32(0.5))
        codes[i * block_size : (i + 1) * block_size] = np.clip(rounded, -127, 127)
    return codes, scales


def corner_values(size: int, seed: int = 0) -> np.ndarray:
    """Return float32 values over many magnitudes, with stretches of every corner case.

    The first third holds a stretch each of subnormals, the smallest normals, values near overflow, Inf,
    NaN and ties. The second is zero, so that from 3 * 4096 values on it covers a whole block of any size. The
    last has no corners.
    """
    random = np.random.default_rng(seed)
    x = (random.standard_normal(size) * 10.0 ** random.integers(-4, 5, size)).astype(np.float32)
    third = size // 3
    x[third : 2 * third] = np.float32([0.0, -0.0])[random.integers(0, 2, third)]
    ties = np.arange(-63.5, 64.5, dtype=np.float32)
    corners = (
        [2.0**-140, -(2.0**-149)],
        [2.0**-126],
        [100 * 2.0**-126],
        [3e38, -3e38],
        [np.inf],
        [-np.inf],
        [np.nan],
    )
    for i, corner in enumerate((*corners, ties)):
        start = third * i // 8
        stretch = x[start : start + random.integers(1, 1 + third // 8)]
        stretch[:] = np.resize(np.float32(corner), stretch.size)
    return x
