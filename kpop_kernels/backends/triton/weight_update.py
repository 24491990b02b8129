"""The last product of a step, whose end decays and updates the weight: no other pass touches it."""

from collections.abc import Sequence

import triton
import triton.language as tl

from ...tuning import RotationConfig
from .memory import load_as_float32, store_rounded
from .product_table import Product, item_number, launch_products
from .product_tile import elements_of, float32_products, offsets_of, product_tile

DECAY, RATE, FOUND_INF = 2, 3, 4
"""Places of the scalars among those of an item."""


def update(
    products: Sequence[Product], *, right_transposed: bool = False, config: RotationConfig | None = None
) -> None:
    """Update W = decay·W - rate·A B, the product's only element tensor being W."""
    launch_products(
        update_kernel,
        products,
        places=(DECAY, RATE, FOUND_INF),
        config=config,
        B_TRANSPOSED=right_transposed,
        PRECISION=float32_products(),
    )


# An element of W is read once and written once: 8 bytes in float32, 4 in 16 bits, and 4 bytes of A beside them.
@triton.jit(do_not_specialize=("count", "decay", "rate", "found_inf"))
def update_kernel(
    a_ptr,
    b_ptr,
    param_ptr,
    m,
    n,
    k,
    a_batch,
    b_batch,
    table_ptr,
    count,
    decay,
    rate,
    found_inf,
    B_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Update one tile."""
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
        False,
        B_TRANSPOSED,
        PRECISION,
        ALIGNED,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
    )
    if item_number(table_ptr, row_ptr, 4, found_inf) != 0:
        return
    offsets, inside = offsets_of(0, rows, columns, n, BLOCK_M, BLOCK_N)
    ptr = elements_of(table_ptr, row_ptr, 0, param_ptr, first, ALIGNED) + offsets
    W = load_as_float32(ptr, inside) * item_number(table_ptr, row_ptr, 2, decay)
    store_rounded(ptr, W - item_number(table_ptr, row_ptr, 3, rate) * sums, inside)
