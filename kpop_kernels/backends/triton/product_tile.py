"""One tile of a product of many: where it is, what it sums, and how its end walks over elements.

A tile begins at a 64-bit address; within a tile offsets have 32 bits, which saves registers.
"""

import torch
import triton
import triton.language as tl

from .memory import load_operand
from .multiply import dot
from .product_table import WIDTH, find_row, size_in_table, tensor_in_table, tile_of


def float32_products() -> str:
    """Return how float32 operands are multiplied: as torch.matmul would, or better.

    Each as three products of its two tf32 halves, or as one of tf32 where the user allowed it.
    """
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


@triton.jit
def product_tile(
    a_ptr,
    b_ptr,
    m,
    n,
    k,
    a_batch,
    b_batch,
    table_ptr,
    count,
    A_TRANSPOSED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    SQUARE: tl.constexpr,
    PRECISION: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Return the sums of a program's tile, the number of its first element, and what its end needs.

    That is the rows and columns from there to the end of the matrix, n, and the row of the table, if there is one.
    """
    tile, row_ptr = tl.program_id(0), a_ptr
    if table_ptr is not None:
        row_ptr = find_row(table_ptr, WIDTH, count, tile)
        tile -= load_operand(row_ptr).to(tl.int32)
        # Of sizes that are aligned the compiler is told; what is no row's length need not be.
        m = size_in_table(row_ptr, 1, ALIGNED and A_TRANSPOSED)
        n = size_in_table(row_ptr, 2, ALIGNED)
        k = size_in_table(row_ptr, 3, ALIGNED and (B_TRANSPOSED or not A_TRANSPOSED))
        a_batch = load_operand(row_ptr + 4)
        b_batch = load_operand(row_ptr + 5)
        if ALIGNED:
            a_batch = tl.multiple_of(a_batch, 16)
            b_batch = tl.multiple_of(b_batch, 16)
        a_ptr = tensor_in_table(row_ptr, 6, a_ptr, ALIGNED)
        b_ptr = tensor_in_table(row_ptr, 7, b_ptr, ALIGNED)
    matrix, i, j = tile_of(tile, m, n, BLOCK_M, BLOCK_N)
    first_row, first_column = i.to(tl.int64) * BLOCK_M, j.to(tl.int64) * BLOCK_N
    rows, columns = m - i * BLOCK_M, n - j * BLOCK_N
    a_ptr += matrix * a_batch
    b_ptr += matrix * b_batch
    if A_TRANSPOSED:
        a_ptr += first_row
    else:
        a_ptr += first_row * k
    if B_TRANSPOSED:
        b_ptr += first_column * k
    else:
        b_ptr += first_column
    sums = _sums(
        *(a_ptr, b_ptr, m, n, k, rows, columns),
        *(A_TRANSPOSED, B_TRANSPOSED, SQUARE, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K),
    )
    return sums, (matrix * m + first_row) * n + first_column, rows, columns, n, row_ptr


@triton.jit
def _sums(
    a_ptr,
    b_ptr,
    m,
    n,
    k,
    rows,
    columns,
    A_TRANSPOSED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    SQUARE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Return the sums of a tile in float32, from the addresses of its first row and column."""
    r, c, s = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    if A_TRANSPOSED:
        a_offsets, a_step = s[None, :] * m + r[:, None], BLOCK_K * m
    else:
        a_offsets, a_step = r[:, None] * k + s[None, :], BLOCK_K
    if B_TRANSPOSED:
        b_offsets, b_step = c[None, :] * k + s[:, None], BLOCK_K
    else:
        b_offsets, b_step = s[:, None] * n + c[None, :], BLOCK_K * n
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in tl.range(0, k, BLOCK_K):
        a = load_operand(a_ptr + a_offsets, (r[:, None] < rows) & (s[None, :] < k - first))
        b = load_operand(b_ptr + b_offsets, (s[:, None] < k - first) & (c[None, :] < columns))
        if SQUARE != "" or a.dtype != b.dtype:
            a, b = a.to(tl.float32), b.to(tl.float32)
        if SQUARE == "a":
            a = a * a
        if SQUARE == "b":
            b = b * b
        sums = dot(a, b, sums, PRECISION)
        a_ptr += a_step
        b_ptr += b_step
    return sums


@triton.jit
def elements_of(table_ptr, row_ptr, place: tl.constexpr, ptr, first, ALIGNED: tl.constexpr):
    """Return the address of a tile's first element in a tensor of the kernel's end, the place-th of them."""
    if table_ptr is not None:
        ptr = tensor_in_table(row_ptr, 8 + place, ptr, ALIGNED)
    return ptr + first


@triton.jit
def offsets_of(first_column, rows, columns, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return offsets from a tile's first element for BLOCK_N of its columns, and which elements exist."""
    r = tl.arange(0, BLOCK_M)[:, None]
    c = first_column + tl.arange(0, BLOCK_N)[None, :]
    return r * n + c, (r < rows) & (c < columns)


@triton.jit
def column_halves(x, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the left and the right half of a tile: an end that takes one at a time needs fewer registers."""
    return tl.split(tl.permute(tl.reshape(x, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))


@triton.jit
def row_halves(x, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the upper and the lower half of a tile, likewise."""
    return tl.split(tl.permute(tl.reshape(x, (2, BLOCK_M // 2, BLOCK_N)), (1, 2, 0)))
