"""Adam in a rotated basis: Adam is the end of the second product, the update the end of the last one.

    T = Q_Lᵀ G,  N = adam(T Q_R),  U = Q_L N,  W = decay·W - lr·U Q_Rᵀ

A side without a factor has no products; without any factor there is one pass over the elements.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import PASS, RotationConfig
from .._dense import dense
from .adam_tile import adam_tile
from .grouped import Product, Scalars, find_product, item_number, launch_products, tensor_in_table
from .kron_rotate import left_product, multiply, right_product
from .memory import load_as_float32, load_operand, store_rounded
from .product_tile import column_halves, elements_of, float32_products, offsets_of, product_tile
from .step_scalars import CORRECTION1, CORRECTION2, DECAY, FOUND_INF, RATE, step_scalars
from .weight_update import update


def kron_adam_(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    Q_L: Tensor | None,
    Q_R: Tensor | None,
    *,
    step: Tensor,
    found_inf: Tensor | None = None,
    **settings: Any,
) -> None:
    """Rotate the gradient, Adam in the basis, rotate back, decay and update the parameter."""
    lists = ([tensor] for tensor in (param, grad, exp_avg, exp_avg_sq, Q_L, Q_R))
    kron_adam_foreach_(*lists, step=[step], found_inf=[found_inf], **settings)


@dataclass(frozen=True)
class _Item:
    """A parameter with what its step reads and writes; all but the gradient are contiguous."""

    param: Tensor
    grad: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor
    Q_L: Any
    Q_R: Any
    scalars: Scalars


def kron_adam_foreach_(
    param: Sequence[Tensor],
    grad: Sequence[Tensor],
    exp_avg: Sequence[Tensor],
    exp_avg_sq: Sequence[Tensor],
    Q_L: Sequence[Tensor | None],
    Q_R: Sequence[Tensor | None],
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: Sequence[Tensor],
    maximize: bool = False,
    found_inf: Sequence[Tensor | None],
    clip: float | None = None,
    config: RotationConfig | None = None,
) -> None:
    """Take the steps of many parameters in as many launches as that of one.

    There are more where dtypes, alignment or the sides with factors differ, but not more with more parameters.
    """
    scalars = step_scalars(
        step, found_inf, lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, device=param[0].device
    )
    numbers = (beta1, 1 - beta1, beta2, 1 - beta2, eps, 0.0 if clip is None else clip)
    options = {"MAXIMIZE": maximize, "CLIP": clip is not None}
    with dense(*param, *exp_avg, *exp_avg_sq) as written:
        count = len(param)
        columns = (written[:count], grad, written[count : 2 * count], written[2 * count :], Q_L, Q_R, scalars)
        items = [_Item(*row) for row in zip(*columns, strict=True)]
        _step_without_factors([item for item in items if item.Q_L is item.Q_R is None], numbers, options)
        _step_on_the_left([item for item in items if item.Q_R is None], numbers, options, config)
        _step_on_the_right([item for item in items if item.Q_R is not None], numbers, options, config)


def _step_without_factors(
    items: Sequence[_Item], numbers: tuple[float, ...], options: dict[str, bool]
) -> None:
    flat = [
        [tensor.reshape(-1) for tensor in (item.grad, item.param, item.exp_avg, item.exp_avg_sq)]
        for item in items
    ]
    launch_products(
        adam_kernel,
        [
            Product(G, G, (1, 1, G.numel(), 1), tuple(rest), item.scalars)
            for (G, *rest), item in zip(flat, items, strict=True)
        ],
        *numbers,
        places=(CORRECTION1, CORRECTION2, DECAY, RATE, FOUND_INF),
        config=PASS,
        **options,
    )


def _step_on_the_left(
    items: Sequence[_Item],
    numbers: tuple[float, ...],
    options: dict[str, bool],
    config: RotationConfig | None,
) -> None:
    items = [item for item in items if item.Q_L is not None]
    N = [_float32_like(item.param) for item in items]
    pairs = list(zip(items, N, strict=True))
    rotations = [
        left_product(i.Q_L, i.grad, i.exp_avg, i.exp_avg_sq, X, scalars=i.scalars) for i, X in pairs
    ]
    _adam(rotations, numbers, options, config, a_transposed=True)
    update([left_product(i.Q_L, X, i.param, scalars=i.scalars) for i, X in pairs], config=config)


def _step_on_the_right(
    items: Sequence[_Item],
    numbers: tuple[float, ...],
    options: dict[str, bool],
    config: RotationConfig | None,
) -> None:
    """Take the steps of items with a factor on the right, and perhaps one on the left."""
    both = [item.Q_L is not None for item in items]
    T = [_float32_like(i.param) if two else i.grad for i, two in zip(items, both, strict=True)]
    N = [_float32_like(i.param) for i in items]
    rows = list(zip(items, T, N, strict=True))
    lefts = [row for row, two in zip(rows, both, strict=True) if two]
    multiply([left_product(i.Q_L, i.grad, X) for i, X, _ in lefts], left=True, inverse=False, config=config)
    rotations = [
        right_product(X, i.Q_R, i.exp_avg, i.exp_avg_sq, Y, scalars=i.scalars) for i, X, Y in rows
    ]
    _adam(rotations, numbers, options, config, a_transposed=False)
    # The first product's memory is free again.
    multiply([left_product(i.Q_L, Y, X) for i, X, Y in lefts], left=True, inverse=True, config=config)
    U = [X if i.Q_L is not None else Y for i, X, Y in rows]
    updates = [right_product(X, i.Q_R, i.param, scalars=i.scalars) for i, X in zip(items, U, strict=True)]
    update(updates, right_transposed=True, config=config)


def _adam(
    products: Sequence[Product],
    numbers: tuple[float, ...],
    options: dict[str, bool],
    config: RotationConfig | None,
    *,
    a_transposed: bool,
) -> None:
    launch_products(
        adam_product_kernel,
        products,
        *numbers,
        places=(CORRECTION1, CORRECTION2, FOUND_INF),
        config=config,
        A_TRANSPOSED=a_transposed,
        PRECISION=float32_products(),
        **options,
    )


def _float32_like(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)


# Of an element, both moments are read once and written once, N is written: 20 bytes, and 4 of the first factor.
@triton.jit(do_not_specialize=("count", "correction1", "correction2", "found_inf"))
def adam_product_kernel(
    a_ptr,
    b_ptr,
    exp_avg_ptr,
    exp_avg_sq_ptr,
    out_ptr,
    m,
    n,
    k,
    a_batch,
    b_batch,
    table_ptr,
    count,
    correction1,
    correction2,
    found_inf,
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    eps,
    limit,
    A_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr,
    MAXIMIZE: tl.constexpr,
    CLIP: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Rotate one tile of the gradient and take Adam's step with it, in two halves that need fewer registers."""
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
        False,
        PRECISION,
        ALIGNED,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
    )
    if item_number(table_ptr, row_ptr, 4, found_inf) != 0:
        return
    correction1 = item_number(table_ptr, row_ptr, 0, correction1)
    correction2 = item_number(table_ptr, row_ptr, 1, correction2)
    exp_avg_ptr = elements_of(table_ptr, row_ptr, 0, exp_avg_ptr, first, ALIGNED)
    exp_avg_sq_ptr = elements_of(table_ptr, row_ptr, 1, exp_avg_sq_ptr, first, ALIGNED)
    out_ptr = elements_of(table_ptr, row_ptr, 2, out_ptr, first, ALIGNED)
    left, right = column_halves(sums, BLOCK_M, BLOCK_N)
    for half in tl.static_range(2):
        offsets, inside = offsets_of(half * (BLOCK_N // 2), rows, columns, n, BLOCK_M, BLOCK_N // 2)
        N = adam_tile(
            left if half == 0 else right,
            exp_avg_ptr,
            exp_avg_sq_ptr,
            offsets,
            inside,
            correction1,
            correction2,
            beta1,
            one_minus_beta1,
            beta2,
            one_minus_beta2,
            eps,
            limit,
            MAXIMIZE,
            CLIP,
        )
        store_rounded(out_ptr + offsets, N, inside)


# 28 bytes an element for a float32 parameter and gradient, 22 for 16 bits.
@triton.jit(
    do_not_specialize=("count", "k", "correction1", "correction2", "decay", "rate", "found_inf")
)
def adam_kernel(
    grad_ptr,
    same_grad_ptr,
    param_ptr,
    exp_avg_ptr,
    exp_avg_sq_ptr,
    m,
    n,
    k,
    a_batch,
    b_batch,
    table_ptr,
    count,
    correction1,
    correction2,
    decay,
    rate,
    found_inf,
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    eps,
    limit,
    MAXIMIZE: tl.constexpr,
    CLIP: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Take Adam's step with BLOCK_N of n elements."""
    tile, row_ptr = tl.program_id(0).to(tl.int64), grad_ptr
    if table_ptr is not None:
        row_ptr = find_product(table_ptr, count, tile)
        tile -= load_operand(row_ptr)
        n = load_operand(row_ptr + 2)
        grad_ptr = tensor_in_table(row_ptr, 6, grad_ptr, ALIGNED)
    if item_number(table_ptr, row_ptr, 4, found_inf) != 0:
        return
    first = tile * BLOCK_N
    offsets = tl.arange(0, BLOCK_N)
    inside = offsets < n - first
    N = adam_tile(
        load_as_float32(grad_ptr + first + offsets, inside),
        elements_of(table_ptr, row_ptr, 1, exp_avg_ptr, first, ALIGNED),
        elements_of(table_ptr, row_ptr, 2, exp_avg_sq_ptr, first, ALIGNED),
        offsets,
        inside,
        item_number(table_ptr, row_ptr, 0, correction1),
        item_number(table_ptr, row_ptr, 1, correction2),
        beta1,
        one_minus_beta1,
        beta2,
        one_minus_beta2,
        eps,
        limit,
        MAXIMIZE,
        CLIP,
    )
    ptr = elements_of(table_ptr, row_ptr, 0, param_ptr, first, ALIGNED) + offsets
    W = load_as_float32(ptr, inside) * item_number(table_ptr, row_ptr, 2, decay)
    store_rounded(ptr, W - item_number(table_ptr, row_ptr, 3, rate) * N, inside)
