"""Kronecker rotations: one product for each side, grouped over matrices of any shapes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import RotationConfig
from .._dense import dense
from .memory import store_rounded
from .product_table import Product, Scalars, launch_products
from .product_tile import elements_of, float32_products, offsets_of, product_tile


def kron_rotate(
    G: Tensor,
    Q_L: Tensor | None,
    Q_R: Tensor | None,
    *,
    inverse: bool = False,
    out: Tensor,
    config: RotationConfig | None = None,
) -> None:
    """Write Q_Lᵀ G Q_R, or Q_L G Q_Rᵀ, to out."""
    # bfloat16 has the range of float32: where nothing else is there, the middle may have it too.
    narrow = all(tensor is None or tensor.dtype == torch.bfloat16 for tensor in (G, Q_L, Q_R))
    middle = torch.bfloat16 if narrow else torch.float32
    factors = Factors(left_transposed=not inverse, right_transposed=inverse, middle=middle)
    multiply_both_sides([G], [Q_L], [Q_R], out=[out], factors=factors, config=config)


@dataclass(frozen=True)
class Factors:
    """How matrices are multiplied on both sides.

    Attributes:
        left_transposed: Whether factors on the left are transposed.
        right_transposed: Whether factors on the right are.
        squared: Whether every element of the factors is squared, in registers.
        middle: Dtype between the two products.
    """

    left_transposed: bool = False
    right_transposed: bool = False
    squared: bool = False
    middle: torch.dtype = torch.float32


def multiply_both_sides(
    X: Sequence[Tensor],
    left: Sequence[Tensor | None],
    right: Sequence[Tensor | None],
    *,
    out: Sequence[Tensor],
    factors: Factors,
    config: RotationConfig | None,
) -> None:
    """Write left X right of every item to out, in two launches or a few times that where dtypes differ."""
    with dense(*out) as targets:
        lefts, rights = [], []
        for x, L, R, target in zip(X, left, right, targets, strict=True):
            if L is not None and R is not None:
                middle = torch.empty(x.shape, dtype=factors.middle, device=x.device)
                lefts.append(left_product(L, x, middle))
                rights.append(right_product(middle, R, target))
            elif L is not None:
                lefts.append(left_product(L, x, target))
            elif R is not None:
                rights.append(right_product(x, R, target))
            else:
                target.copy_(x)
        squares = ("a", "b") if factors.squared else ("", "")
        multiply(lefts, a_transposed=factors.left_transposed, square=squares[0], config=config)
        multiply(rights, b_transposed=factors.right_transposed, square=squares[1], config=config)


def left_product(
    Q: Tensor, X: Tensor, *elements: Tensor, scalars: Scalars = (), extra: tuple[Tensor | int, ...] = ()
) -> Product:
    """Return the product of a factor on the left and matrices."""
    *batch, m, n = X.shape
    matrices = torch.Size(batch).numel()
    return Product(_operand(Q), _operand(X, matrices), (matrices, m, n, m), elements, scalars, extra)


def right_product(
    X: Tensor, Q: Tensor, *elements: Tensor, scalars: Scalars = (), extra: tuple[Tensor | int, ...] = ()
) -> Product:
    """Return the product of matrices and a factor on the right."""
    *batch, m, n = X.shape
    matrices = torch.Size(batch).numel()
    return Product(_operand(X, matrices), _operand(Q), (matrices, m, n, n), elements, scalars, extra)


def _operand(X: Tensor, matrices: int | None = None) -> Tensor:
    """Return one contiguous matrix or a batch, in a dtype that kernels load."""
    if X.dtype == torch.float64:
        X = X.to(torch.float32)
    if X.ndim > 2 or matrices is not None:
        X = X.reshape(X.shape[:-2].numel() if matrices is None else matrices, *X.shape[-2:])
    return X.contiguous()


def multiply(
    products: Sequence[Product],
    *,
    a_transposed: bool = False,
    b_transposed: bool = False,
    square: str = "",
    config: RotationConfig | None = None,
) -> None:
    """Compute products, of the squared elements of "a" or "b" if one is named."""
    launch_products(
        product_kernel,
        products,
        config=config,
        A_TRANSPOSED=a_transposed,
        B_TRANSPOSED=b_transposed,
        SQUARE=square,
        PRECISION=float32_products(),
    )


# A tile reads k·(BLOCK_M + BLOCK_N) operands, mostly from the cache, and writes BLOCK_M·BLOCK_N results: in all
# 4mn bytes read and 4mn written a product of float32 matrices if operands stay in the cache, beside the factor.
@triton.jit(do_not_specialize=("count",))
def product_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
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
    """Compute one tile."""
    sums, first, rows, columns, n, row_ptr = product_tile(
        *(a_ptr, b_ptr, m, n, k, a_batch, b_batch, table_ptr, count),
        *(A_TRANSPOSED, B_TRANSPOSED, SQUARE, PRECISION, ALIGNED, BLOCK_M, BLOCK_N, BLOCK_K),
    )
    offsets, inside = offsets_of(0, rows, columns, n, BLOCK_M, BLOCK_N)
    store_rounded(elements_of(table_ptr, row_ptr, 0, out_ptr, first, ALIGNED) + offsets, sums, inside)
