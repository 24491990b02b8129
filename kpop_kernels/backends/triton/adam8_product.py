"""Products whose end is Adam with 8-bit moments: the rotated gradient never reaches memory.

A row of a tile is one quantization block of 256 elements, so this is for matrices with a multiple of 256 columns.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ...codebooks import dynamic_buckets, dynamic_map
from ...tuning import ROWS_OF_256
from .adam_tile import normalized
from .memory import load_operand, store_rounded
from .moments import ema_int8_of_rows, ema_sq_dynamic8_of_rows
from .philox import calls_of
from .product_table import EXTRA, Product, extra_tensor, item_number, launch_products
from .product_tile import elements_of, float32_products, offsets_of, product_tile, row_halves

BLOCK = 256


def ends_in_adam8(shape: torch.Size, block_size: int, offset: int) -> bool:
    """Tell whether the blocks of a matrix are rows of tiles, and begin where calls of the generator do."""
    return block_size == BLOCK and not shape[-1] % BLOCK and not offset % 8


def adam8_of_products(
    products: Sequence[Product],
    numbers: tuple[float, ...],
    seed: int,
    *,
    a_transposed: bool,
    maximize: bool,
) -> None:
    """Take Adam's step up to the normalized first moment with the products.

    Args:
        products: Element tensors are the codes of both moments, and where the normalized first moment goes; extra
            ones are scales, zero points, absmax, the number of the step, then stream and offset.
        numbers: What `adam_tile.normalized` and the averages need: betas and what is left of 1, eps, limit.
        seed: Key of the generator.
        a_transposed: Whether left factors are transposed.
        maximize: Whether the gradient counts negative.
    """
    device = products[0].a.device if products else torch.device("cpu")
    launch_products(
        adam8_product_kernel,
        products,
        *(dynamic_map(False, device), dynamic_buckets(False, device)),
        *numbers,
        seed & 0xFFFFFFFFFFFFFFFF,
        config=ROWS_OF_256,
        A_TRANSPOSED=a_transposed,
        PRECISION=float32_products(),
        MAXIMIZE=maximize,
    )


# Of an element, the codes of both moments are read and written, N is written: 8 + 18/256 bytes, and 4 of the first
# factor.
@triton.jit(do_not_specialize=("count", "seed"))
def adam8_product_kernel(
    a_ptr,
    b_ptr,
    m_codes_ptr,
    v_codes_ptr,
    out_ptr,
    m,
    n,
    k,
    a_batch,
    b_batch,
    table_ptr,
    count,
    values_ptr,
    buckets_ptr,
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    eps,
    limit,
    seed: tl.uint64,
    A_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr,
    MAXIMIZE: tl.constexpr,
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
    if item_number(table_ptr, row_ptr, 4, 0) != 0:
        return
    m_codes_ptr = elements_of(table_ptr, row_ptr, 0, m_codes_ptr, first, ALIGNED)
    v_codes_ptr = elements_of(table_ptr, row_ptr, 1, v_codes_ptr, first, ALIGNED)
    out_ptr = elements_of(table_ptr, row_ptr, 2, out_ptr, first, ALIGNED)
    scales_ptr = extra_tensor(row_ptr, 0, tl.float32) + first // BLOCK_N
    zero_points_ptr = extra_tensor(row_ptr, 1, tl.uint8) + first // BLOCK_N
    absmax_ptr = extra_tensor(row_ptr, 2, tl.float32) + first // BLOCK_N
    step_ptr = extra_tensor(row_ptr, 3, tl.float64)
    stream, offset = load_operand(row_ptr + EXTRA + 4), load_operand(row_ptr + EXTRA + 5)
    correction1, correction2 = item_number(table_ptr, row_ptr, 0, 0), item_number(table_ptr, row_ptr, 1, 0)
    upper, lower = row_halves(sums, BLOCK_M, BLOCK_N)
    for half in tl.static_range(2):
        above = half * (BLOCK_M // 2)
        element, block = above * n, above * (n // BLOCK_N)
        offsets, inside = offsets_of(0, rows - above, columns, n, BLOCK_M // 2, BLOCK_N)
        N = _adam8_of_rows(
            upper if half == 0 else lower,
            *(m_codes_ptr + element, scales_ptr + block, zero_points_ptr + block),
            *(v_codes_ptr + element, absmax_ptr + block, values_ptr, buckets_ptr),
            *(offsets, inside, rows - above, n, correction1, correction2),
            *(beta1, one_minus_beta1, beta2, one_minus_beta2, eps, limit, seed, step_ptr, stream, offset),
            *(first + element, MAXIMIZE, BLOCK_M // 2, BLOCK_N),
        )
        store_rounded(out_ptr + element + offsets, N, inside)


@triton.jit
def _adam8_of_rows(
    g,
    m_codes_ptr,
    scales_ptr,
    zero_points_ptr,
    v_codes_ptr,
    absmax_ptr,
    values_ptr,
    buckets_ptr,
    offsets,
    inside,
    rows,
    n,
    correction1,
    correction2,
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    eps,
    limit,
    seed,
    step_ptr,
    stream,
    offset,
    first,
    MAXIMIZE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """Average moments, whose blocks are rows, with g and return the normalized first moment."""
    if MAXIMIZE:
        g = -g
    blocks, exist = tl.arange(0, ROWS) * (n // BLOCK_SIZE), tl.arange(0, ROWS) < rows
    mean = ema_int8_of_rows(
        *(m_codes_ptr, scales_ptr, zero_points_ptr, g, offsets, inside, blocks, exist),
        *(beta1, one_minus_beta1, seed, step_ptr, stream, offset),
        *(calls_of(first, n, ROWS, BLOCK_SIZE), False),
    )
    v = ema_sq_dynamic8_of_rows(
        *(v_codes_ptr, absmax_ptr, values_ptr, buckets_ptr, g, offsets, inside, blocks, exist),
        *(beta2, one_minus_beta2),
    )
    return normalized(mean * correction1, v * correction2, eps, limit, True)
