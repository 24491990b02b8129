"""Launches of kernels that compute products tile by tile."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from . import _shader
from ._blocks import NAMES

TILE = 64
_THREADS = 128

# A dispatch that takes long is stopped while a display is attached: 2^35 operations take 25 ms on the slowest.
_OPERATIONS_PER_LAUNCH = 2**35
_TILES_PER_LAUNCH = 2**24


class Lines(NamedTuple):
    """A factor of a product as the kernels read it: rows of the left one, columns of the right one.

    Attributes:
        data: Memory without gaps.
        number: Number of lines of one matrix.
        depth: Length of a line.
        strides: Distance of matrices of the batch, of lines, and of elements along a line.
    """

    data: Tensor
    number: int
    depth: int
    strides: tuple[int, int, int]

    @property
    def type(self) -> str:
        """The element type as host names of kernels have it."""
        return NAMES[self.data.dtype]


def lines(X: Tensor, *, shared: bool = False) -> Lines:
    """Return the rows of X (..., number, depth); shared by the whole batch or of each matrix."""
    if X.dtype not in NAMES:
        X = X.to(torch.float32)
    number, depth = X.shape[-2:]
    batch = 0 if shared else number * depth
    if X.mT.is_contiguous():
        return Lines(X.mT, number, depth, (batch, 1, number))
    return Lines(X.contiguous(), number, depth, (batch, depth, 1))


def tiles_of(out: Tensor) -> int:
    """Return how many tiles the matrices of a batch have."""
    rows, columns = out.shape[-2:]
    return out.shape[:-2].numel() * -(-rows // TILE) * -(-columns // TILE)


def launch_tiles(
    source_name: str,
    kernel_name: str,
    tiles: int,
    left: Lines,
    right: Lines,
    buffers: Sequence[Tensor],
    *others: Tensor | list[float],
    flags: Sequence[int] = (),
) -> None:
    """Launch a kernel on every tile of a product, in pieces if that would take long.

    The kernel's arguments are both factors, the buffers, a list of integers as product.metal has them, and the
    others.

    Args:
        source_name: Name of the Metal source.
        kernel_name: Host name of the kernel.
        tiles: How many tiles the batch has.
        left: Rows.
        right: Columns.
        buffers: Contiguous tensors.
        others: What the kernel reads besides.
        flags: Integers that follow those of every product.
    """
    operations = 2 * TILE**2 * max(left.depth, 1)
    a_launch = max(1, min(_TILES_PER_LAUNCH, _OPERATIONS_PER_LAUNCH // operations))
    shape = (left.number, right.number, left.depth)
    # Without depth there is no memory that could be bound.
    factors = [X.data if X.depth else X.data.new_zeros(1) for X in (left, right)]
    for first in range(0, tiles, a_launch):
        _shader.kernel(source_name, kernel_name)(
            *factors,
            *buffers,
            [first, *shape, *left.strides, *right.strides, *map(int, flags)],
            *others,
            threads=min(a_launch, tiles - first) * _THREADS,
            group_size=_THREADS,
        )
