"""Kronecker rotations: one product for each side, grouped over matrices of any shapes."""

from collections.abc import Sequence

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
    with dense(out) as (target,):
        if Q_L is not None and Q_R is not None:
            middle = torch.empty(G.shape, dtype=_between(G, Q_L, Q_R), device=G.device)
            multiply([left_product(Q_L, G, middle)], left=True, inverse=inverse, config=config)
            multiply([right_product(middle, Q_R, target)], left=False, inverse=inverse, config=config)
        elif Q_L is not None:
            multiply([left_product(Q_L, G, target)], left=True, inverse=inverse, config=config)
        elif Q_R is not None:
            multiply([right_product(G, Q_R, target)], left=False, inverse=inverse, config=config)
        else:
            target.copy_(G)


def _between(*tensors: Tensor) -> torch.dtype:
    """Return the dtype between two products: bfloat16 if nothing else is there, for it has float32's range."""
    return torch.bfloat16 if {t.dtype for t in tensors} == {torch.bfloat16} else torch.float32


def left_product(Q: Tensor, X: Tensor, *elements: Tensor, scalars: Scalars = ()) -> Product:
    """Return the product of a factor on the left and matrices."""
    *batch, m, n = X.shape
    matrices = torch.Size(batch).numel()
    return Product(_operand(Q), _operand(X, matrices), (matrices, m, n, m), elements, scalars)


def right_product(X: Tensor, Q: Tensor, *elements: Tensor, scalars: Scalars = ()) -> Product:
    """Return the product of matrices and a factor on the right."""
    *batch, m, n = X.shape
    matrices = torch.Size(batch).numel()
    return Product(_operand(X, matrices), _operand(Q), (matrices, m, n, n), elements, scalars)


def _operand(X: Tensor, matrices: int | None = None) -> Tensor:
    """Return one contiguous matrix or a batch, in a dtype that kernels load."""
    if X.dtype == torch.float64:
        X = X.to(torch.float32)
    if X.ndim > 2 or matrices is not None:
        X = X.reshape(X.shape[:-2].numel() if matrices is None else matrices, *X.shape[-2:])
    return X.contiguous()


def multiply(
    products: Sequence[Product], *, left: bool, inverse: bool, config: RotationConfig | None = None
) -> None:
    """Compute products by factors on the left, transposed but for the inverse, or on the right."""
    launch_products(
        product_kernel,
        products,
        config=config,
        A_TRANSPOSED=left and not inverse,
        B_TRANSPOSED=inverse and not left,
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
    PRECISION: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile."""
    sums, first, rows, columns, n, row_ptr = product_tile(
        a_ptr,
        b_ptr,
        m,
        n,
        k,
        a_batch,
        b_batch,
        table_ptr,
        count,
        A_TRANSPOSED,
        B_TRANSPOSED,
        PRECISION,
        ALIGNED,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
    )
    offsets, inside = offsets_of(0, rows, columns, n, BLOCK_M, BLOCK_N)
    store_rounded(elements_of(table_ptr, row_ptr, 0, out_ptr, first, ALIGNED) + offsets, sums, inside)
