"""A matrix in two bases and their complements: every step of a list of any shapes is one launch.

All products are cut into the same tiles, so that the bits of an item do not depend on its list.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import SMALL_TILES, RotationConfig
from .._dense import dense_lists
from .kron_rotate import multiply
from .memory import load_as_float32, store_rounded
from .product_table import Product, Scalars, item_number, launch_products
from .product_tile import elements_of, float32_products, offsets_of, product_tile
from .scalars import scalar_argument, scalar_value
from .step_scalars import flags


def block_project_foreach(
    G: Sequence[Tensor],
    U_L: Sequence[Tensor],
    U_R: Sequence[Tensor],
    *,
    out: tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]],
    config: RotationConfig = SMALL_TILES[4],
) -> None:
    """Write the four parts of every matrix in four launches, in six where matrices have 16 bits.

    G U_R is where A will be and U_Lᵀ G where B will be, so that nothing is written that is no part.
    """
    G, U_L, U_R = ([X.contiguous() for X in column] for column in (G, U_L, U_R))
    with dense_lists(*out) as parts:
        items = list(zip(G, U_L, U_R, *parts, strict=True))
        multiply([_product(X, R, A) for X, _, R, _, A, _, _ in items], config=config)
        lefts = [_product(L, X, B, a_transposed=True) for X, L, _, _, _, B, _ in items]
        lefts += [_product(L, A, main, a_transposed=True) for _, L, _, main, A, _, _ in items]
        multiply(lefts, a_transposed=True, config=config)
        first = [_product(L, main, A, A) for _, L, _, main, A, _, _ in items]
        first += [_product(L, B, X, C) for X, L, _, _, _, B, C in items]
        _add(first, -1.0, config=config)
        last = [_product(main, R, B, B, b_transposed=True) for _, _, R, main, _, B, _ in items]
        last += [_product(A, R, C, C, b_transposed=True) for _, _, R, _, A, _, C in items]
        _add(last, -1.0, b_transposed=True, config=config)


def block_lift_foreach_(
    X: Sequence[Tensor],
    main: Sequence[Tensor | None],
    A: Sequence[Tensor | None],
    B: Sequence[Tensor | None],
    C: Sequence[Tensor | None],
    U_L: Sequence[Tensor],
    U_R: Sequence[Tensor],
    *,
    alpha: Tensor,
    beta: Tensor,
    found_inf: Sequence[Tensor | None],
    config: RotationConfig = SMALL_TILES[4],
) -> None:
    """Update X ← beta·X + alpha·((A + U_L main) U_Rᵀ + (C + U_L B)); first what is in brackets."""
    device = X[0].device
    rows = torch.zeros(len(X), 1, device=device)
    rows[:, 0] = flags(found_inf, device)
    lift = _Lift()
    with dense_lists(X) as (targets,):
        for target, L, R, scalars, *parts in zip(targets, U_L, U_R, rows, main, A, B, C, strict=True):
            lift.append(target, L.contiguous(), R.contiguous(), scalars, parts)
        factors = (scalar_argument(alpha, device), scalar_argument(beta, device))
        lift.run(*factors, config=config)


class _Lift:
    """The products of a list of lifts: those of the first launch, and those that end in the matrices."""

    def __init__(self) -> None:
        self._plain: list[Product] = []
        self._added: list[Product] = []
        self._last: dict[tuple[bool, bool], list[Product]] = {}

    def append(
        self, X: Tensor, U_L: Tensor, U_R: Tensor, scalars: Scalars, parts: Sequence[Tensor | None]
    ) -> None:
        """Plan the update of one item."""
        main, A, B, C = (None if part is None else part.contiguous() for part in parts)
        left = A if main is None else self._sum(U_L, main, A)
        if left is not None:
            rest = C if B is None else self._sum(U_L, B, C)
            self._end(left, U_R, rest, X, scalars, b_transposed=True)
        elif B is not None:
            self._end(U_L, B, C, X, scalars)
        else:
            # A product without a sum: what is left is its end.
            nothing = X.new_empty(*X.shape[:-1], 0, dtype=torch.float32)
            self._end(nothing, nothing.new_empty(*X.shape[:-2], 0, X.shape[-1]), C, X, scalars)

    def run(self, alpha: Tensor | float, beta: Tensor | float, *, config: RotationConfig) -> None:
        """Launch what was planned."""
        multiply(self._plain, config=config)
        _add(self._added, 1.0, config=config)
        for (b_transposed, has_addend), products in self._last.items():
            launch_products(
                block_lift_kernel,
                products,
                alpha,
                beta,
                places=(0,),
                config=config,
                B_TRANSPOSED=b_transposed,
                HAS_ADDEND=has_addend,
                PRECISION=float32_products(),
            )

    def _sum(self, U: Tensor, part: Tensor, addend: Tensor | None) -> Tensor:
        """Return where addend + U part will be after the first launch."""
        out = U.new_empty(*U.shape[:-1], part.shape[-1])
        if addend is None:
            self._plain.append(_product(U, part, out))
        else:
            self._added.append(_product(U, part, addend, out))
        return out

    def _end(
        self,
        a: Tensor,
        b: Tensor,
        addend: Tensor | None,
        X: Tensor,
        scalars: Scalars,
        *,
        b_transposed: bool = False,
    ) -> None:
        elements = (X if addend is None else addend, X)
        product = _product(a, b, *elements, b_transposed=b_transposed, scalars=scalars)
        self._last.setdefault((b_transposed, addend is not None), []).append(product)


def _product(
    a: Tensor,
    b: Tensor,
    *elements: Tensor,
    a_transposed: bool = False,
    b_transposed: bool = False,
    scalars: Scalars = (),
) -> Product:
    """Return the products of two batches of contiguous matrices, each as it is stored."""
    a, b = (t.reshape(t.shape[:-2].numel(), *t.shape[-2:]) for t in (a, b))
    k, m = a.shape[1:] if a_transposed else a.shape[:0:-1]
    n = b.shape[1] if b_transposed else b.shape[2]
    return Product(a, b, (len(a), m, n, k), elements, scalars)


def _add(
    products: Sequence[Product], weight: float, *, b_transposed: bool = False, config: RotationConfig
) -> None:
    """Write the first element tensor + weight·a b to the second, which may be the first."""
    launch_products(
        add_product_kernel,
        products,
        weight,
        config=config,
        B_TRANSPOSED=b_transposed,
        PRECISION=float32_products(),
    )


# The addend is read and the sum written: 8 bytes an element in float32, 6 where the addend has 16 bits, beside the
# operands, which stay in the cache but for the longer one: with m×n and rank r about 4(m + n)r bytes.
@triton.jit(do_not_specialize=("count", "weight"))
def add_product_kernel(
    a_ptr,
    b_ptr,
    addend_ptr,
    out_ptr,
    m,
    n,
    k,
    a_batch,
    b_batch,
    table_ptr,
    count,
    weight,
    B_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile."""
    sums, first, rows, columns, n, row_ptr = product_tile(
        *(a_ptr, b_ptr, m, n, k, a_batch, b_batch, table_ptr, count, False, B_TRANSPOSED, ""),
        *(PRECISION, ALIGNED, BLOCK_M, BLOCK_N, BLOCK_K),
    )
    offsets, inside = offsets_of(0, rows, columns, n, BLOCK_M, BLOCK_N)
    addend = elements_of(table_ptr, row_ptr, 0, addend_ptr, first, ALIGNED) + offsets
    out = elements_of(table_ptr, row_ptr, 1, out_ptr, first, ALIGNED) + offsets
    store_rounded(out, load_as_float32(addend, inside) + weight * sums, inside)


# An element of X is read once and written once, and the addend read: 12 bytes in float32, 8 where X has 16 bits.
@triton.jit(do_not_specialize=("count", "found_inf", "alpha", "beta"))
def block_lift_kernel(
    a_ptr,
    b_ptr,
    addend_ptr,
    x_ptr,
    m,
    n,
    k,
    a_batch,
    b_batch,
    table_ptr,
    count,
    found_inf,
    alpha,
    beta,
    B_TRANSPOSED: tl.constexpr,
    HAS_ADDEND: tl.constexpr,
    PRECISION: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Update one tile of X."""
    sums, first, rows, columns, n, row_ptr = product_tile(
        *(a_ptr, b_ptr, m, n, k, a_batch, b_batch, table_ptr, count, False, B_TRANSPOSED, ""),
        *(PRECISION, ALIGNED, BLOCK_M, BLOCK_N, BLOCK_K),
    )
    if item_number(table_ptr, row_ptr, 0, found_inf) != 0:
        return
    offsets, inside = offsets_of(0, rows, columns, n, BLOCK_M, BLOCK_N)
    if HAS_ADDEND:
        addend = elements_of(table_ptr, row_ptr, 0, addend_ptr, first, ALIGNED) + offsets
        sums += load_as_float32(addend, inside)
    x = elements_of(table_ptr, row_ptr, 1, x_ptr, first, ALIGNED) + offsets
    kept = load_as_float32(x, inside) * scalar_value(beta).to(tl.float32)
    store_rounded(x, kept + scalar_value(alpha).to(tl.float32) * sums, inside)
