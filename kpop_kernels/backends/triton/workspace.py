"""Matrices of mixed sizes in one buffer, so that one launch computes with all of them.

A workspace knows sizes, not addresses: what kernels read of it stays the same from call to call and is written
once. A buffer holds one matrix for each item, rows and columns filled up with zeros.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import ProductConfig
from .device_table import device_table
from .memory import load_operand
from .symmetric import ALIGNMENT, padded


class Group(NamedTuple):
    """Matrices of one size.

    Attributes:
        matrices: Number of matrices.
        rows: Rows of each, no more than columns.
        columns: Columns of each.
    """

    matrices: int
    rows: int
    columns: int


class Row(NamedTuple):
    """What a kernel knows of a group.

    Attributes:
        triangle: Its first program where programs are tiles on and above the diagonal of rows × rows.
        square: The same for all tiles of rows × rows.
        wide: The same for all tiles of rows × columns.
        square_offset: Where its first rows × rows matrix begins.
        wide_offset: Where its first rows × columns matrix begins.
        rows: Number of rows, filled up to a multiple of 16.
        columns: Number of columns, filled up likewise.
        order: Number of rows that count.
        band: Its first program where programs are bands of 16 rows.
        vector: Where its first vector of one number for each row begins.
    """

    triangle: int
    square: int
    wide: int
    square_offset: int
    wide_offset: int
    rows: int
    columns: int
    order: int
    band: int
    vector: int


FIELDS = tl.constexpr(len(Row._fields))
TRIANGLE, SQUARE, WIDE, SQUARE_OFFSET, WIDE_OFFSET = map(tl.constexpr, range(5))
ROWS, COLUMNS, ORDER, BAND, VECTOR = map(tl.constexpr, range(5, 10))


class Workspace:
    """The places of a list's matrices in buffers of squares (rows × rows) and of wide matrices (rows × columns).

    Attributes:
        groups: Matrices of one size each.
        config: How products are cut into tiles.
        end: The row behind the last group's: numbers of programs and sizes of buffers.
        table: One row for each group, on the device; filled up to a power of two with rows that have no program.
        even: Whether all tiles are whole.
    """

    def __init__(self, groups: Sequence[Group], config: ProductConfig, device: torch.device) -> None:
        self.groups, self.config = groups, config
        *rows, self.end = _rows(groups, config)
        self.even = all(
            not size % block
            for row in rows
            for size in (row.rows, row.columns)
            for block in (config.block, config.block_k)
        )
        nothing = self.end._replace(triangle=2**62, square=2**62, wide=2**62, band=2**62)
        rows += [nothing] * (triton.next_power_of_2(len(rows)) - len(rows))
        self.table = device_table(tuple(rows), torch.int64, device)

    def filled(self, matrices: Sequence[Tensor], *, wide: bool) -> Tensor:
        """Return a float32 buffer with the matrices of each group, (count, rows, columns)."""
        elements = self.end.wide_offset if wide else self.end.square_offset
        buffer = torch.zeros(elements, device=self.table.device)
        views = self.wides(buffer) if wide else self.squares(buffer)
        for view, batch in zip(views, matrices, strict=True):
            view.copy_(batch)
        return buffer

    def squares(self, buffer: Tensor) -> Iterator[Tensor]:
        """Yield the matrices of each group without filling, (count, order, order), of a buffer of squares."""
        places = (row.square_offset for row in _rows(self.groups, self.config))
        for group, start in zip(self.groups, places, strict=False):
            yield _view(buffer, start, group.matrices, group.rows, group.rows)

    def wides(self, buffer: Tensor) -> Iterator[Tensor]:
        """Yield the matrices of each group without filling, (count, rows, columns), of a buffer of wide ones."""
        places = (row.wide_offset for row in _rows(self.groups, self.config))
        for group, start in zip(self.groups, places, strict=False):
            yield _view(buffer, start, *group)

    def heads(self, vectors: Tensor) -> Iterator[Tensor]:
        """Yield the first number of each matrix's vector, (count, 1, 1) for each group."""
        rows = _rows(self.groups, self.config)
        for group, row in zip(self.groups, rows, strict=False):
            yield vectors.as_strided((group.matrices, 1, 1), (row.rows, 1, 1), row.vector)


def _rows(groups: Iterable[Group], config: ProductConfig) -> Iterator[Row]:
    """Yield a row for each group, and one of their sums."""
    row = Row(*(0,) * len(Row._fields))
    for count, m, n in groups:
        rows, columns = padded(m), padded(n)
        yield row._replace(rows=rows, columns=columns, order=m)
        blocks = config.blocks(rows)
        row = Row(
            row.triangle + count * config.upper_tiles(rows),
            row.square + count * blocks**2,
            row.wide + count * blocks * config.blocks(columns),
            row.square_offset + count * rows**2,
            row.wide_offset + count * rows * columns,
            *(0, 0, 0),
            row.band + count * rows // ALIGNMENT,
            row.vector + count * rows,
        )
    yield row


def _view(buffer: Tensor, start: int, count: int, rows: int, columns: int) -> Tensor:
    height, width = padded(rows), padded(columns)
    strides = (height * width, width, 1)
    return buffer.as_strided((count, rows, columns), strides, buffer.storage_offset() + start)


@triton.jit
def group_of_program(table_ptr, FIRST: tl.constexpr, GROUPS: tl.constexpr):
    """Return the row of the program's group, and which program of the group it is.

    Args:
        table_ptr: Table of a workspace.
        FIRST: Field with the first programs.
        GROUPS: Rows of the table.
    """
    program = tl.program_id(0)
    first = load_operand(table_ptr + tl.arange(0, GROUPS) * FIELDS + FIRST)
    row_ptr = table_ptr + (tl.sum((first <= program).to(tl.int32)) - 1) * FIELDS
    return row_ptr, program - load_operand(row_ptr + FIRST).to(tl.int32)


@triton.jit
def size(row_ptr, FIELD: tl.constexpr):
    """Return a group's number of rows or columns, filled up."""
    return tl.multiple_of(load_operand(row_ptr + FIELD).to(tl.int32), 16)


@triton.jit
def place(row_ptr, FIELD: tl.constexpr, matrix, rows, columns):
    """Return where a matrix of a group begins in a buffer."""
    elements = rows.to(tl.int64) * columns
    return tl.multiple_of(load_operand(row_ptr + FIELD) + matrix * elements, 16)
