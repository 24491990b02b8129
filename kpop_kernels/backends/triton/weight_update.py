"""The last product of a step, whose end decays and updates the weight: no other pass touches it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import PASS, RotationConfig
from .adam_tile import move
from .elements import element_program, flat_product
from .kron_rotate import left_product, multiply, right_product
from .memory import load_as_float32
from .product_table import Product, Scalars, item_number, launch_products
from .product_tile import elements_of, float32_products, offsets_of, product_tile
from .step_scalars import DECAY, FOUND_INF, RATE


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


@dataclass(frozen=True)
class Back:
    """An update in a basis, and the weight that it goes back to.

    Attributes:
        update: The update N, contiguous.
        param: The weight W, contiguous; it becomes decay·W - rate·left N rightᵀ.
        left: Factor on the left; None leaves the side alone.
        right: Factor on the right, likewise.
        scalars: Those of `step_scalars`.
        middle: Float32 memory for what is between two products, if there is some.
    """

    update: Tensor
    param: Tensor
    left: Tensor | None
    right: Tensor | None
    scalars: Scalars
    middle: Tensor | None = None


def rotate_into_weights(
    items: Sequence[Back], *, transposed: bool = True, config: RotationConfig | None = None
) -> None:
    """Update weights along the updates rotated back; the right factor is transposed, or else not."""
    first, lefts, rights, plain = [], [], [], []
    for item in items:
        N, W, L, R, scalars = item.update, item.param, item.left, item.right, item.scalars
        if L is not None and R is not None:
            middle = item.middle
            if middle is None:
                middle = torch.empty(N.shape, dtype=torch.float32, device=N.device)
            first.append(left_product(L, N, middle))
            rights.append(right_product(middle, R, W, scalars=scalars))
        elif L is not None:
            lefts.append(left_product(L, N, W, scalars=scalars))
        elif R is not None:
            rights.append(right_product(N, R, W, scalars=scalars))
        else:
            plain.append((N, W, scalars))
    multiply(first, config=config)
    if transposed:
        update(lefts, config=config)
        update(rights, right_transposed=True, config=config)
    else:
        update([*lefts, *rights], config=config)
    update_without_product(plain)


def update_without_product(items: Sequence[tuple[Tensor, Tensor, Scalars]]) -> None:
    """Update W = decay·W - rate·X of items (X, W, scalars)."""
    launch_products(
        plain_update_kernel,
        [flat_product(X, W, scalars=scalars) for X, W, scalars in items],
        places=(DECAY, RATE, FOUND_INF),
        config=PASS,
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
        *(a_ptr, b_ptr, m, n, k, a_batch, b_batch, table_ptr, count),
        *(False, B_TRANSPOSED, "", PRECISION, ALIGNED, BLOCK_M, BLOCK_N, BLOCK_K),
    )
    if item_number(table_ptr, row_ptr, 4, found_inf) != 0:
        return
    offsets, inside = offsets_of(0, rows, columns, n, BLOCK_M, BLOCK_N)
    ptr = elements_of(table_ptr, row_ptr, 0, param_ptr, first, ALIGNED) + offsets
    decay, rate = item_number(table_ptr, row_ptr, 2, decay), item_number(table_ptr, row_ptr, 3, rate)
    move(ptr, sums, inside, decay, rate)


# 12 bytes an element in float32, 6 in 16 bits.
@triton.jit(do_not_specialize=("count", "decay", "rate", "found_inf"))
def plain_update_kernel(
    x_ptr,
    same_x_ptr,
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
    ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Update BLOCK_N elements."""
    x_ptr, first, offsets, inside, row_ptr = element_program(x_ptr, n, table_ptr, count, ALIGNED, BLOCK_N)
    if item_number(table_ptr, row_ptr, 4, found_inf) != 0:
        return
    x = load_as_float32(x_ptr + offsets, inside)
    ptr = elements_of(table_ptr, row_ptr, 0, param_ptr, first, ALIGNED) + offsets
    decay, rate = item_number(table_ptr, row_ptr, 2, decay), item_number(table_ptr, row_ptr, 3, rate)
    move(ptr, x, inside, decay, rate)
