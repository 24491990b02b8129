"""Parts of matrix products: a program's tile, the sum over the inner dimension, the mirrored store.

A matrix begins at a 64-bit address, its tiles too; within a tile offsets have 32 bits, which saves registers.
Orders, strides and addresses are multiples of 16, so that every access has 16 bytes.
"""

import triton
import triton.language as tl

from .memory import load_as_float32, load_operand, rounded, store_operand


@triton.jit
def triangle(blocks):
    """Return the number of tiles on and above the diagonal of blocks × blocks."""
    return blocks * (blocks + 1) // 2


#   0  1  3  6     Tiles on and above the diagonal, column after column: programs that run at the same time
#      2  4  7     share columns of B.
#         5  8
@triton.jit
def upper_tile(t):
    """Return row and column of tile t."""
    j = ((tl.sqrt_rn(8.0 * t.to(tl.float32) + 1.0) - 1.0) * 0.5).to(tl.int32)
    # float32 may be off by one.
    j = tl.where(triangle(j + 1) <= t, j + 1, j)
    j = tl.where(triangle(j) > t, j - 1, j)
    return t - triangle(j), j


@triton.jit
def inside(i, j, rows, columns, BLOCK: tl.constexpr):
    """Return which elements of tile (i, j) exist."""
    r = tl.arange(0, BLOCK)
    return (r[:, None] < rows - i * BLOCK) & (r[None, :] < columns - j * BLOCK)


@triton.jit
def dot(a, b, acc, PRECISION: tl.constexpr):
    """Return acc + a b, accumulated in float32; AMD has matrix instructions for float32 itself."""
    if tl.target_info.is_hip():
        acc = tl.dot(a, b, acc, input_precision="ieee")
    else:
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    return acc


@triton.jit
def add_product(
    acc,
    a_ptr,
    a_row,
    a_column,
    b_ptr,
    b_row,
    b_column,
    i,
    j,
    rows,
    columns,
    depth,
    PRECISION: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Return acc + tile (i, j) of A B, for A rows × depth and B depth × columns with any strides."""
    r = tl.arange(0, BLOCK)
    k = tl.arange(0, BLOCK_K)
    a_offsets = r[:, None] * a_row + k[None, :] * a_column
    b_offsets = k[:, None] * b_row + r[None, :] * b_column
    a_ptr += (i * BLOCK).to(tl.int64) * a_row
    b_ptr += (j * BLOCK).to(tl.int64) * b_column
    for first in tl.range(0, depth, BLOCK_K):
        if EVEN:
            a = load_operand(a_ptr + a_offsets)
            b = load_operand(b_ptr + b_offsets)
        else:
            left = depth - first
            a = load_operand(a_ptr + a_offsets, (r[:, None] < rows - i * BLOCK) & (k[None, :] < left))
            b = load_operand(b_ptr + b_offsets, (k[:, None] < left) & (r[None, :] < columns - j * BLOCK))
        acc = dot(a, b, acc, PRECISION)
        a_ptr += BLOCK_K * a_column
        b_ptr += BLOCK_K * b_row
    return acc


@triton.jit
def load_tile(ptr, i, j, rows, columns, row, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Return tile (i, j) of a matrix in float32; `row` is the stride of its rows."""
    r = tl.arange(0, BLOCK)
    ptr += (i * BLOCK).to(tl.int64) * row + j * BLOCK
    offsets = r[:, None] * row + r[None, :]
    if EVEN:
        values = load_as_float32(ptr + offsets)
    else:
        values = load_as_float32(ptr + offsets, inside(i, j, rows, columns, BLOCK))
    return values


@triton.jit
def store_tile(ptr, values, i, j, rows, columns, row, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Store tile (i, j) of a matrix; the values have the dtype of the memory."""
    r = tl.arange(0, BLOCK)
    ptr += (i * BLOCK).to(tl.int64) * row + j * BLOCK
    offsets = r[:, None] * row + r[None, :]
    if EVEN:
        store_operand(ptr + offsets, values)
    else:
        store_operand(ptr + offsets, values, inside(i, j, rows, columns, BLOCK))


@triton.jit
def store_mirrored(ptr, values, i, j, n, row, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Store tile (i, j) of a symmetric matrix and its mirror image; of a diagonal tile the lower half counts.

    Values are rounded before they are mirrored: a transposition moves half as many bytes then.
    """
    values = rounded(values, ptr.dtype.element_ty)
    if i == j:
        r = tl.arange(0, BLOCK)
        values = tl.where(r[:, None] >= r[None, :], values, tl.trans(values))
    store_tile(ptr, values, i, j, n, n, row, BLOCK, EVEN)
    if i != j:
        store_tile(ptr, tl.trans(values), j, i, n, n, row, BLOCK, EVEN)
