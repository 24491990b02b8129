"""Adam in a rotated basis: Adam is the end of the second product, the update the end of the last one.

    T = Q_Lᵀ G,  N = adam(T Q_R),  U = Q_L N,  W = decay·W - lr·U Q_Rᵀ

A side without a factor has no products; without any factor there is one pass over the elements.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import PASS, RotationConfig
from .._dense import dense
from .adam_product import AdamSettings, adam_of_products
from .adam_tile import adam_tile, move
from .elements import element_program, flat_product
from .kron_rotate import left_product, multiply, right_product
from .memory import load_as_float32, store_rounded
from .product_table import Scalars, item_number, launch_products
from .product_tile import elements_of
from .step_scalars import CORRECTION1, CORRECTION2, DECAY, FOUND_INF, RATE, step_scalars
from .weight_update import Back, rotate_into_weights


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
    exp_avg_basis: str = "rotated",
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Sequence[Tensor | None],
    config: RotationConfig | None = None,
) -> None:
    """Take the steps of many parameters in as many launches as that of one.

    There are more where dtypes, alignment or the sides with factors differ, but not more with more parameters.
    """
    scalars = step_scalars(
        step, found_inf, lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, device=param[0].device
    )
    settings = AdamSettings(beta1, beta2, eps, clip, maximize)
    with dense(*param, *exp_avg, *exp_avg_sq) as written:
        count = len(param)
        columns = (written[:count], grad, written[count : 2 * count], written[2 * count :], Q_L, Q_R, scalars)
        items = [_Item(*row) for row in zip(*columns, strict=True)]
        _step_without_factors([item for item in items if not item.rotated], settings)
        items = [item for item in items if item.rotated]
        _rotate_into_adam(items, settings, config, original=exp_avg_basis == "original")
        back = [Back(i.normalized, i.param, i.Q_L, i.Q_R, i.scalars, i.middle) for i in items]
        rotate_into_weights(back, config=config)


class _Item:
    """A parameter with what its step reads and writes, all contiguous but the gradient.

    Attributes:
        param, grad, exp_avg, exp_avg_sq, Q_L, Q_R: As in the operator.
        scalars: Those of `step_scalars`.
        rotated: Whether there is a factor.
        two_sided: Whether there are both.
        middle: Memory between two products.
        normalized: The normalized first moment N in the basis.
    """

    def __init__(
        self,
        param: Tensor,
        grad: Tensor,
        exp_avg: Tensor,
        exp_avg_sq: Tensor,
        Q_L: Any,
        Q_R: Any,
        scalars: Scalars,
    ) -> None:
        self.param, self.grad = param, grad
        self.exp_avg, self.exp_avg_sq = exp_avg, exp_avg_sq
        self.Q_L, self.Q_R, self.scalars = Q_L, Q_R, scalars
        self.rotated = Q_L is not None or Q_R is not None
        self.two_sided = Q_L is not None and Q_R is not None
        self.middle = torch.empty_like(exp_avg) if self.two_sided else exp_avg
        self.normalized = torch.empty_like(exp_avg) if self.rotated else exp_avg


def _step_without_factors(items: Sequence[_Item], settings: AdamSettings) -> None:
    launch_products(
        adam_kernel,
        [flat_product(i.grad, i.param, i.exp_avg, i.exp_avg_sq, scalars=i.scalars) for i in items],
        *settings.numbers,
        places=(CORRECTION1, CORRECTION2, DECAY, RATE, FOUND_INF),
        config=PASS,
        **settings.options,
    )


def _rotate_into_adam(
    items: Sequence[_Item], settings: AdamSettings, config: RotationConfig | None, *, original: bool
) -> None:
    """Average both moments, and write the normalized first moments in the basis."""
    if not original:
        _rotate(items, [item.grad for item in items], "both", settings, config)
        return
    # The gradient is rotated for the second moment, the first moment is averaged where it is and rotated then.
    launch_products(
        exp_avg_kernel,
        [flat_product(i.grad, i.exp_avg, scalars=i.scalars) for i in items],
        settings.beta1,
        1 - settings.beta1,
        places=(FOUND_INF,),
        config=PASS,
        MAXIMIZE=settings.maximize,
    )
    _rotate(items, [item.grad for item in items], "second", settings, config)
    _rotate(items, [item.exp_avg for item in items], "none", settings, config)


def _rotate(
    items: Sequence[_Item],
    tensors: Sequence[Tensor],
    average: str,
    settings: AdamSettings,
    config: RotationConfig | None,
) -> None:
    """Rotate a tensor of each item, with Adam or a part of it at the end of the last product."""
    pairs = list(zip(items, tensors, strict=True))
    first = [left_product(i.Q_L, X, i.middle) for i, X in pairs if i.two_sided]
    multiply(first, a_transposed=True, config=config)
    lefts, rights = [], []
    for i, X in pairs:
        ends = (i.exp_avg, i.exp_avg_sq, i.normalized)
        if i.Q_R is None:
            lefts.append(left_product(i.Q_L, X, *ends, scalars=i.scalars))
        else:
            rights.append(right_product(i.middle if i.two_sided else X, i.Q_R, *ends, scalars=i.scalars))
    adam_of_products(lefts, average, settings, config, a_transposed=True)
    adam_of_products(rights, average, settings, config, a_transposed=False)


# 28 bytes an element for a float32 parameter and gradient, 22 for 16 bits.
@triton.jit(do_not_specialize=("count", "correction1", "correction2", "decay", "rate", "found_inf"))
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
    grad_ptr, first, offsets, inside, row_ptr = element_program(
        grad_ptr, n, table_ptr, count, ALIGNED, BLOCK_N
    )
    if item_number(table_ptr, row_ptr, 4, found_inf) != 0:
        return
    N = adam_tile(
        load_as_float32(grad_ptr + offsets, inside),
        elements_of(table_ptr, row_ptr, 1, exp_avg_ptr, first, ALIGNED),
        elements_of(table_ptr, row_ptr, 2, exp_avg_sq_ptr, first, ALIGNED),
        *(offsets, inside),
        item_number(table_ptr, row_ptr, 0, correction1),
        item_number(table_ptr, row_ptr, 1, correction2),
        *(beta1, one_minus_beta1, beta2, one_minus_beta2, eps, limit, "both", MAXIMIZE, CLIP),
    )
    ptr = elements_of(table_ptr, row_ptr, 0, param_ptr, first, ALIGNED) + offsets
    decay, rate = item_number(table_ptr, row_ptr, 2, decay), item_number(table_ptr, row_ptr, 3, rate)
    move(ptr, N, inside, decay, rate)


# 12 bytes an element for a float32 gradient, 10 for 16 bits.
@triton.jit(do_not_specialize=("count", "found_inf"))
def exp_avg_kernel(
    grad_ptr,
    same_grad_ptr,
    exp_avg_ptr,
    m,
    n,
    k,
    a_batch,
    b_batch,
    table_ptr,
    count,
    found_inf,
    beta1,
    one_minus_beta1,
    MAXIMIZE: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Average the first moment in the original basis."""
    grad_ptr, first, offsets, inside, row_ptr = element_program(
        grad_ptr, n, table_ptr, count, ALIGNED, BLOCK_N
    )
    if item_number(table_ptr, row_ptr, 4, found_inf) != 0:
        return
    g = load_as_float32(grad_ptr + offsets, inside)
    if MAXIMIZE:
        g = -g
    ptr = elements_of(table_ptr, row_ptr, 0, exp_avg_ptr, first, ALIGNED) + offsets
    store_rounded(ptr, beta1 * load_as_float32(ptr, inside) + one_minus_beta1 * g, inside)
