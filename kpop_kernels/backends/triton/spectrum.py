"""Bounds of the spectra of a workspace's squares, norms of its wide matrices, and what they are divided by.

A reduction of aten is cut as the number of its results suggests, so that its bits depend on what else is in a
batch. Here sums are cut by the order of their matrix alone. They are in float64: no square overflows, and powers
of two in a matrix stay exact.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import BlockwiseConfig
from .launch import launch
from .memory import load_operand, store_operand, store_rounded
from .workspace import (
    BAND,
    COLUMNS,
    ORDER,
    ROWS,
    SQUARE_OFFSET,
    VECTOR,
    WIDE_OFFSET,
    Workspace,
    group_of_program,
    place,
    size,
)

_CONFIG = BlockwiseConfig(elements=1024, num_warps=4)

BAND_ROWS = tl.constexpr(16)
_CHUNK = tl.constexpr(64)
LEAST_SUM = tl.constexpr(1e-290)
"""Stands for the sum of a row of zeros."""


def normalize_(
    workspace: Workspace, S: Tensor, damping: float = 0.0, relative_damping: float = 0.0
) -> list[Tensor]:
    """Replace each matrix by (S + δI)/bound, δ = damping + relative_damping · bound(S), and return the bounds.

    Args:
        workspace: Where the matrices are.
        S: Buffer of squares in float32, symmetric.
        damping: Added to the diagonal.
        relative_damping: Added to the diagonal, in units of the bound.

    Returns:
        An upper bound of each spectrum, δ included, in float64, (count, 1, 1) for each group: 0 for a zero matrix,
        NaN for one that is not finite.
    """
    end, groups = workspace.end, len(workspace.table)
    sums = torch.empty(4, end.vector, dtype=torch.float64, device=S.device)
    bounds = torch.empty(end.vector, dtype=torch.float64, device=S.device)
    grid = (end.band,)
    launch(band_sums_kernel, grid, (workspace.table, S, *sums[:3]), _CONFIG, GROUPS=groups)
    launch(band_ratios_kernel, grid, (workspace.table, S, sums[0], sums[3]), _CONFIG, GROUPS=groups)
    arguments = (workspace.table, S, *sums[1:], bounds, damping, relative_damping)
    launch(band_normalize_kernel, grid, arguments, _CONFIG, GROUPS=groups)
    return list(workspace.heads(bounds))


def normalize_wide_(workspace: Workspace, X: Tensor, eps: float) -> None:
    """Divide each matrix of a buffer of wide ones in float32 by its Frobenius norm and eps; zeros stay zeros."""
    squares = torch.empty(workspace.end.vector, dtype=torch.float64, device=X.device)
    grid, groups = (workspace.end.band,), len(workspace.table)
    launch(band_squares_kernel, grid, (workspace.table, X, squares), _CONFIG, GROUPS=groups)
    launch(band_divide_kernel, grid, (workspace.table, X, squares, eps), _CONFIG, GROUPS=groups)


@triton.jit
def band_of_program(table_ptr, IS_WIDE: tl.constexpr, GROUPS: tl.constexpr):
    """Return the row of the program's group, its first row, and where its matrix and vectors of its rows begin."""
    row_ptr, t = group_of_program(table_ptr, BAND, GROUPS)
    m = size(row_ptr, ROWS)
    n = size(row_ptr, COLUMNS if IS_WIDE else ROWS)
    matrix = (t // (m // BAND_ROWS)).to(tl.int64)
    start = place(row_ptr, WIDE_OFFSET if IS_WIDE else SQUARE_OFFSET, matrix, m, n)
    return row_ptr, t % (m // BAND_ROWS) * BAND_ROWS, start, load_operand(row_ptr + VECTOR) + matrix * m


@triton.jit
def chunk(ptr, first_row, first_column, n):
    """Return the addresses of a band's rows from a column on, and which of them exist; `n` columns do."""
    r = first_row.to(tl.int64) + tl.arange(0, BAND_ROWS)
    c = first_column + tl.arange(0, _CHUNK)
    return ptr + r[:, None] * n + c[None, :], (r >= 0)[:, None] & (c < n)[None, :]


@triton.jit
def load_chunk(ptr, first_row, first_column, n):
    """Return a band's rows from a column on in float64; columns that do not exist are 0."""
    pointers, exist = chunk(ptr, first_row, first_column, n)
    return load_operand(pointers, exist).to(tl.float64)


@triton.jit
def sum_of_vector(ptr, n):
    """Return the sum of n numbers in float64."""
    total = tl.zeros((_CHUNK,), tl.float64)
    for first in tl.range(0, n, _CHUNK):
        c = first + tl.arange(0, _CHUNK)
        total += load_operand(ptr + c, c < n)
    return tl.sum(total, axis=0)


@triton.jit
def band_squares_kernel(table_ptr, x_ptr, squares_ptr, GROUPS: tl.constexpr):
    """Compute the sums of squares of a band of rows."""
    row_ptr, first_row, start, vector = band_of_program(table_ptr, True, GROUPS)
    n = size(row_ptr, COLUMNS)
    squares = tl.zeros((BAND_ROWS,), tl.float64)
    for first in tl.range(0, n, _CHUNK):
        x = load_chunk(x_ptr + start, first_row, first, n)
        squares += tl.sum(x * x, axis=1)
    store_operand(squares_ptr + vector + first_row + tl.arange(0, BAND_ROWS), squares)


@triton.jit
def band_divide_kernel(table_ptr, x_ptr, squares_ptr, eps: tl.float64, GROUPS: tl.constexpr):
    """Divide a band of rows by the norm of its matrix."""
    row_ptr, first_row, start, vector = band_of_program(table_ptr, True, GROUPS)
    n = size(row_ptr, COLUMNS)
    norm = tl.sqrt(sum_of_vector(squares_ptr + vector, size(row_ptr, ROWS))) + eps
    inverse = tl.where(norm == 0.0, 1.0, tl.fdiv(1.0, norm))
    for first in tl.range(0, n, _CHUNK):
        pointers, exist = chunk(x_ptr + start, first_row, first, n)
        store_rounded(pointers, load_operand(pointers, exist).to(tl.float64) * inverse, exist)


@triton.jit
def band_sums_kernel(table_ptr, s_ptr, magnitudes_ptr, squares_ptr, diagonal_ptr, GROUPS: tl.constexpr):
    """Compute Σⱼ |Sᵢⱼ|, Σⱼ Sᵢⱼ² and Sᵢᵢ for a band of rows."""
    row_ptr, first_row, start, vector = band_of_program(table_ptr, False, GROUPS)
    n = size(row_ptr, ROWS)
    magnitudes = tl.zeros((BAND_ROWS,), tl.float64)
    squares = tl.zeros((BAND_ROWS,), tl.float64)
    for first in tl.range(0, n, _CHUNK):
        x = load_chunk(s_ptr + start, first_row, first, n)
        magnitudes += tl.sum(tl.abs(x), axis=1)
        squares += tl.sum(x * x, axis=1)
    r = first_row.to(tl.int64) + tl.arange(0, BAND_ROWS)
    store_operand(magnitudes_ptr + vector + r, magnitudes)
    store_operand(squares_ptr + vector + r, squares)
    store_operand(diagonal_ptr + vector + r, load_operand(s_ptr + start + r * (n + 1)).to(tl.float64))


@triton.jit
def band_ratios_kernel(table_ptr, s_ptr, magnitudes_ptr, ratios_ptr, GROUPS: tl.constexpr):
    """Compute (|S| r)ᵢ / rᵢ for a band of rows, where r are the row sums of |S|."""
    row_ptr, first_row, start, vector = band_of_program(table_ptr, False, GROUPS)
    n = size(row_ptr, ROWS)
    products = tl.zeros((BAND_ROWS,), tl.float64)
    for first in tl.range(0, n, _CHUNK):
        c = first + tl.arange(0, _CHUNK)
        sums = tl.maximum(load_operand(magnitudes_ptr + vector + c, c < n), LEAST_SUM)
        products += tl.sum(tl.abs(load_chunk(s_ptr + start, first_row, first, n)) * sums[None, :], axis=1)
    r = first_row + tl.arange(0, BAND_ROWS)
    own = tl.maximum(load_operand(magnitudes_ptr + vector + r), LEAST_SUM)
    store_operand(ratios_ptr + vector + r, tl.fdiv(products, own))


@triton.jit
def spectrum_bound(diagonal, squares, collatz_wielandt, order):
    """Return the smaller of the Wolkowicz–Styan and the Collatz–Wielandt bound in float64, with a margin.

    Args:
        diagonal: Sum of the diagonal.
        squares: Sum of all squares.
        collatz_wielandt: Largest ratio.
        order: Rows of the matrix, in float64.
    """
    mean = tl.fdiv(diagonal, order)
    rms = tl.sqrt(tl.fdiv(squares, order))
    deviation = tl.sqrt(tl.maximum((rms - mean) * (rms + mean), 0.0))
    bound = tl.minimum(mean + deviation * tl.sqrt(order - 1.0), collatz_wielandt)
    # A minimum may leave out NaN.
    return bound * 1.01 + squares * 0.0


@triton.jit
def damped(bound, damping, relative_damping):
    """Return what is added to the diagonal and the bound with it."""
    delta = bound * relative_damping + damping
    return delta, bound + delta * 1.01


@triton.jit
def band_normalize_kernel(
    table_ptr,
    s_ptr,
    squares_ptr,
    diagonal_ptr,
    ratios_ptr,
    bounds_ptr,
    damping: tl.float64,
    relative_damping: tl.float64,
    GROUPS: tl.constexpr,
):
    """Replace a band of rows by that of (S + δI)/bound; every band computes the bound of its matrix."""
    row_ptr, first_row, start, vector = band_of_program(table_ptr, False, GROUPS)
    n = size(row_ptr, ROWS)
    order = load_operand(row_ptr + ORDER)
    largest = tl.zeros((_CHUNK,), tl.float64)
    for first in tl.range(0, n, _CHUNK):
        c = first + tl.arange(0, _CHUNK)
        largest = tl.maximum(largest, load_operand(ratios_ptr + vector + c, c < n))
    diagonal, squares = sum_of_vector(diagonal_ptr + vector, n), sum_of_vector(squares_ptr + vector, n)
    bound = spectrum_bound(diagonal, squares, tl.max(largest, axis=0), order.to(tl.float64))
    delta, bound = damped(bound, damping, relative_damping)
    if first_row == 0:
        store_operand(bounds_ptr + vector, bound)
    inverse = tl.where(bound == 0.0, 1.0, tl.fdiv(1.0, bound))
    r = first_row.to(tl.int64) + tl.arange(0, BAND_ROWS)
    for first in tl.range(0, n, _CHUNK):
        c = first + tl.arange(0, _CHUNK)
        is_diagonal = (r[:, None] == c[None, :]) & (c < order)[None, :]
        pointers, exist = chunk(s_ptr + start, first_row, first, n)
        y = load_operand(pointers, exist).to(tl.float64) * inverse + tl.where(
            is_diagonal, delta * inverse, 0.0
        )
        store_rounded(pointers, y, exist)
