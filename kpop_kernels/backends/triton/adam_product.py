"""Products whose end is Adam: the rotated gradient never reaches memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import triton
import triton.language as tl

from ...tuning import RotationConfig
from .adam_tile import adam_tile
from .memory import store_rounded
from .product_table import Product, item_number, launch_products
from .product_tile import column_halves, elements_of, float32_products, offsets_of, product_tile
from .step_scalars import CORRECTION1, CORRECTION2, FOUND_INF


@dataclass(frozen=True)
class AdamSettings:
    """What all parameters of a step share.

    Attributes:
        beta1: Decay of the first moment.
        beta2: Decay of the second moment.
        eps: Added to the denominator.
        clip: Limit of the normalized first moment.
        maximize: Whether the gradient counts negative.
    """

    beta1: float
    beta2: float
    eps: float
    clip: float | None
    maximize: bool

    @property
    def numbers(self) -> tuple[float, ...]:
        """What kernels take, in their order."""
        clip = 0.0 if self.clip is None else self.clip
        return (self.beta1, 1 - self.beta1, self.beta2, 1 - self.beta2, self.eps, clip)

    @property
    def options(self) -> dict[str, bool]:
        """What kernels are compiled for."""
        return {"MAXIMIZE": self.maximize, "CLIP": self.clip is not None}


def adam_of_products(
    products: Sequence[Product],
    average: str,
    settings: AdamSettings,
    config: RotationConfig | None,
    *,
    a_transposed: bool,
) -> None:
    """Take Adam's step up to the normalized first moment with the products; see `adam_tile` for ``average``.

    Their element tensors are the moments and where the normalized first moment goes.
    """
    launch_products(
        adam_product_kernel,
        products,
        *settings.numbers,
        places=(CORRECTION1, CORRECTION2, FOUND_INF),
        config=config,
        A_TRANSPOSED=a_transposed,
        PRECISION=float32_products(),
        AVERAGE=average,
        **settings.options,
    )


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
    AVERAGE: tl.constexpr,
    MAXIMIZE: tl.constexpr,
    CLIP: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Rotate one tile of the gradient and take Adam's step with it, in two halves that need fewer registers."""
    sums, first, rows, columns, n, row_ptr = product_tile(
        *(a_ptr, b_ptr, m, n, k, a_batch, b_batch, table_ptr, count),
        *(A_TRANSPOSED, False, "", PRECISION, ALIGNED, BLOCK_M, BLOCK_N, BLOCK_K),
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
            *(exp_avg_ptr, exp_avg_sq_ptr, offsets, inside, correction1, correction2),
            *(beta1, one_minus_beta1, beta2, one_minus_beta2, eps, limit, AVERAGE, MAXIMIZE, CLIP),
        )
        if AVERAGE != "second":
            store_rounded(out_ptr + offsets, N, inside)
