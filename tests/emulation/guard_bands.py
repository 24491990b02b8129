"""Arrays with guard bands: a kernel that reads or writes past an end is found out.

The bands are filled with ones, which is NaN in every floating-point format and -1 in every integer: a value
read from them poisons the result, and a value written to them is seen by ``check``.
"""

import numpy as np
import numpy.typing as npt

POISON_BYTE = 0xFF
BAND_BYTES = 4096
ALIGNMENT = 128


class GuardBandError(AssertionError):
    """A guard band was written to."""


class GuardBands:
    """Allocates arrays between guard bands and checks the bands afterwards.

    Arrays start ``offset_bytes`` behind a multiple of 128 bytes, so that 0 gives aligned ones.
    """

    def __init__(self) -> None:
        self._guarded: list[tuple[str, np.ndarray, slice]] = []

    def place(self, name: str, values: np.ndarray, offset_bytes: int = 0) -> np.ndarray:
        """Return a copy of ``values`` between guard bands."""
        array = self.poisoned(name, values.shape, values.dtype, offset_bytes)
        array[...] = values
        return array

    def poisoned(
        self, name: str, shape: int | tuple[int, ...], dtype: npt.DTypeLike, offset_bytes: int = 0
    ) -> np.ndarray:
        """Return an array of poison between guard bands, for an output."""
        shape = (shape,) if isinstance(shape, int) else shape
        dtype = np.dtype(dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        buffer = np.full(size + 2 * BAND_BYTES + ALIGNMENT + offset_bytes, POISON_BYTE, np.uint8)
        start = -(buffer.ctypes.data + BAND_BYTES) % ALIGNMENT + BAND_BYTES + offset_bytes
        self._guarded.append((name, buffer, slice(start, start + size)))
        return np.ndarray(shape, dtype, buffer=buffer.data, offset=start)

    def check(self) -> None:
        """Raise ``GuardBandError`` if a byte around an array has changed."""
        for name, buffer, array in self._guarded:
            for side, band in (("before", buffer[: array.start]), ("behind", buffer[array.stop :])):
                changed = np.flatnonzero(band != POISON_BYTE)
                if changed.size:
                    raise GuardBandError(f"{changed.size} bytes {side} the array {name!r} were overwritten")
