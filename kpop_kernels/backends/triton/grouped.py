"""Products of all matrices of a workspace, one launch for each."""

import triton
import triton.language as tl
from torch import Tensor

from .launch import launch
from .memory import load_operand, rounded
from .multiply import add_product, load_tile, store_mirrored, store_tile, triangle, upper_tile
from .product_table import tile_of
from .workspace import (
    COLUMNS,
    ORDER,
    ROWS,
    SQUARE,
    SQUARE_OFFSET,
    TRIANGLE,
    WIDE,
    WIDE_OFFSET,
    Workspace,
    group_of_program,
    place,
    size,
)


def product(
    workspace: Workspace,
    A: Tensor,
    B: Tensor,
    C: Tensor | None = None,
    *,
    out: Tensor,
    alpha: float = 1.0,
    beta: float = 0.0,
    precision: str | None = None,
    wide: bool,
) -> Tensor:
    """Write alpha·A B + beta·C to out and return it; A are squares, B, C and out are wide or squares.

    Float32 operands are multiplied as the workspace's configuration says, or in the given precision.
    """
    config = workspace.config
    launch(
        grouped_product_kernel,
        (workspace.end.wide if wide else workspace.end.square,),
        (workspace.table, A, B, out if C is None else C, out, alpha, beta),
        config,
        GROUPS=len(workspace.table),
        IS_WIDE=wide,
        HAS_ADDEND=C is not None,
        PRECISION=precision or config.float32,
        BLOCK=config.block,
        BLOCK_K=config.block_k,
        EVEN=workspace.even,
    )
    return out


def symmetric_product(
    workspace: Workspace,
    A: Tensor,
    B: Tensor | None = None,
    C: Tensor | None = None,
    *,
    out: Tensor,
    alpha: float = 1.0,
    beta: float = 0.0,
    diagonal: float = 0.0,
    precision: str | None = None,
) -> Tensor:
    """Write alpha·A B + beta·C + diagonal·I to out and return it, squares that are symmetric.

    Without B, A are wide and B = Aᵀ.
    """
    config = workspace.config
    launch(
        grouped_symmetric_kernel,
        (workspace.end.triangle,),
        (workspace.table, A, A if B is None else B, out if C is None else C, out, alpha, beta, diagonal),
        config,
        GROUPS=len(workspace.table),
        IS_GRAM=B is None,
        HAS_ADDEND=C is not None,
        PRECISION=precision or config.float32,
        BLOCK=config.block,
        BLOCK_K=config.block_k,
        EVEN=workspace.even,
    )
    return out


@triton.jit
def grouped_product_kernel(
    table_ptr,
    a_ptr,
    b_ptr,
    c_ptr,
    out_ptr,
    alpha,
    beta,
    GROUPS: tl.constexpr,
    IS_WIDE: tl.constexpr,
    HAS_ADDEND: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Compute one tile of one matrix."""
    row_ptr, t = group_of_program(table_ptr, WIDE if IS_WIDE else SQUARE, GROUPS)
    m = size(row_ptr, ROWS)
    n = size(row_ptr, COLUMNS if IS_WIDE else ROWS)
    matrix, i, j = tile_of(t, m, n, BLOCK, BLOCK)
    a_ptr += place(row_ptr, SQUARE_OFFSET, matrix, m, m)
    start = place(row_ptr, WIDE_OFFSET if IS_WIDE else SQUARE_OFFSET, matrix, m, n)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    acc = add_product(acc, a_ptr, m, 1, b_ptr + start, n, 1, i, j, m, n, m, PRECISION, BLOCK, BLOCK_K, EVEN)
    acc *= alpha
    if HAS_ADDEND:
        acc += beta * load_tile(c_ptr + start, i, j, m, n, n, BLOCK, EVEN)
    values = rounded(acc, out_ptr.dtype.element_ty)
    store_tile(out_ptr + start, values, i, j, m, n, n, BLOCK, EVEN)


@triton.jit
def grouped_symmetric_kernel(
    table_ptr,
    a_ptr,
    b_ptr,
    c_ptr,
    out_ptr,
    alpha,
    beta,
    diagonal,
    GROUPS: tl.constexpr,
    IS_GRAM: tl.constexpr,
    HAS_ADDEND: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Compute one tile of one matrix, and store it and its mirror image."""
    row_ptr, t = group_of_program(table_ptr, TRIANGLE, GROUPS)
    m = size(row_ptr, ROWS)
    tiles = triangle(tl.cdiv(m, BLOCK))
    matrix = t // tiles
    i, j = upper_tile(t % tiles)
    start = place(row_ptr, SQUARE_OFFSET, matrix, m, m)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    if IS_GRAM:
        n = size(row_ptr, COLUMNS)
        a_ptr += place(row_ptr, WIDE_OFFSET, matrix, m, n)
        acc = add_product(acc, a_ptr, n, 1, a_ptr, 1, n, i, j, m, m, n, PRECISION, BLOCK, BLOCK_K, EVEN)
    else:
        acc = add_product(
            acc, a_ptr + start, m, 1, b_ptr + start, m, 1, i, j, m, m, m, PRECISION, BLOCK, BLOCK_K, EVEN
        )
    acc *= alpha
    if HAS_ADDEND:
        acc += beta * load_tile(c_ptr + start, i, j, m, m, m, BLOCK, EVEN)
    if i == j:
        r = tl.arange(0, BLOCK)
        counts = r < load_operand(row_ptr + ORDER) - i * BLOCK
        acc += tl.where((r[:, None] == r[None, :]) & counts[:, None], diagonal, 0.0)
    store_mirrored(out_ptr + start, acc, i, j, m, m, BLOCK, EVEN)
