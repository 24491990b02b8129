"""Philox-4x32-10, and the 16 random bits that an element of a tensor owns.

A block of the generator is 128 bits and serves 8 elements. Which 8 depends on the element's place in the
whole logical tensor alone: roundings do not change with block size, vector width, launch shape or sharding.
"""

import numpy as np

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW32 = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def philox4x32(counter: tuple, key: tuple[int, int], rounds: int = 10) -> np.ndarray:
    """Return the four output words, stacked on a new last axis, for four words of counter and two of key."""
    c0, c1, c2, c3 = (np.asarray(word, dtype=np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(rounds):
        p0, p1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c2 = (p1 >> HALF) ^ c1 ^ np.uint64(k0), (p0 >> HALF) ^ c3 ^ np.uint64(k1)
        c1, c3 = p1 & LOW32, p0 & LOW32
        k0, k1 = (k0 + WEYL[0]) & 0xFFFFFFFF, (k1 + WEYL[1]) & 0xFFFFFFFF
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1).astype(np.uint32)


def random16(numel: int, *, seed: int, step: int, stream: int, offset: int = 0) -> np.ndarray:
    """Return the uint16 of elements offset, offset + 1, ... of a tensor.

    The key is the seed. The counter is (low and high word of e >> 3, step, stream) for element e, which owns
    entry e & 7 of the output read as eight little-endian 16-bit numbers.
    """
    first = offset >> 3
    calls = np.arange(((offset + numel + 7) >> 3) - first, dtype=np.uint64) + np.uint64(first)
    words = philox4x32((calls & LOW32, calls >> HALF, step, stream), (seed & 0xFFFFFFFF, seed >> 32))
    entries = words.astype("<u4").view("<u2").reshape(-1)
    return entries[offset & 7 :][:numel].astype(np.uint16)
