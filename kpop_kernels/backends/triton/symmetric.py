"""Products known to be symmetric: the tiles below the diagonal, each stored twice; of C nothing else is read.

One product, or a batch of one shape, is described by the kernel's arguments; several by a table with a row each.
"""

from collections.abc import Iterable, Sequence
from ctypes import c_float, c_int32
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import ProductConfig, product_config
from .launch import launch
from .memory import load_operand
from .multiply import add_product, load_tile, store_mirrored, triangle, upper_tile
from .product_table import find_row, kept_table, size_in_table, tensor_in_table

ALIGNMENT = 16
"""Orders, strides and addresses are multiples of it, in elements and bytes: accesses have 16 bytes then."""

_LARGEST_STRIDE = 2**23
"""Offsets within a tile have 32 bits."""

_SHARED_OPERANDS = (9, 10, 11)
"""Generations of NVIDIA's devices whose matrix instructions read shared memory."""

_WIDTH = tl.constexpr(16)
"""Numbers in a row of the table: first tile, n, k, batch strides and row lengths, addresses, bits of alpha."""


def symm_mm(
    A: Tensor,
    B: Tensor,
    *,
    C: Tensor | None,
    alpha: float,
    beta: float,
    out: Tensor,
    config: ProductConfig | None = None,
) -> None:
    """Write alpha·A B + beta·C to out."""
    _multiply([_item(aligned(A), aligned(B), C if beta else None, alpha, out)], beta, config)


def syrk(
    X: Tensor,
    *,
    C: Tensor | None,
    alpha: float,
    beta: float,
    side: str,
    out: Tensor,
    config: ProductConfig | None = None,
) -> None:
    """Write alpha·X Xᵀ + beta·C, or alpha·XᵀX + beta·C, to out."""
    _multiply([_gram(X, C if beta else None, alpha, side, out)], beta, config)


def average_grams(
    S: Sequence[Tensor],
    X: Sequence[Tensor],
    *,
    alpha: Sequence[float],
    beta: float,
    side: Sequence[str],
    diagonal: float = 0.0,
    config: ProductConfig | None = None,
) -> None:
    """Update S ← beta·S + alpha·X Xᵀ (or XᵀX) + diagonal·I of every item, in one launch for each kind of them.

    Kinds differ in dtypes, and in which stride of X is 1.
    """
    rows = zip(S, X, alpha, side, strict=True)
    items = [_gram(x, s if beta else None, a, which, s) for s, x, a, which in rows]
    _multiply(items, beta, config, diagonal=diagonal)


def padded(n: int) -> int:
    """Return the next multiple of `ALIGNMENT`."""
    return -(-n // ALIGNMENT) * ALIGNMENT


def aligned(X: Tensor) -> Tensor:
    """Return X as (batch, rows, columns) that a kernel reads 16 bytes at a time.

    That is X itself where its sizes and strides are multiples of 16 and one stride is 1, else a copy with zeros
    in rows and columns that fill up.
    """
    *_, m, n = X.shape
    X = X.reshape(X.shape[:-2].numel(), m, n)
    if m % ALIGNMENT or n % ALIGNMENT:
        return torch.nn.functional.pad(X, (0, padded(n) - n, 0, padded(m) - m))
    batch, *strides = X.stride()
    short, long = sorted(strides)
    fits = short == 1 and not long % ALIGNMENT and long <= _LARGEST_STRIDE
    if fits and not batch % ALIGNMENT and not X.data_ptr() % ALIGNMENT:
        return X
    return X.contiguous()


def configuration(device: torch.device, itemsize: int, order: int) -> ProductConfig:
    """Return the configuration for symmetric results of one order, from operands of so many bytes."""
    nvidia = device.type == "cuda" and torch.version.hip is None
    in_registers = nvidia and torch.cuda.get_device_capability(device)[0] not in _SHARED_OPERANDS
    return product_config(itemsize, padded(order), operands_in_registers=in_registers)


def by_configuration(
    batches: Sequence[Tensor], itemsize: int, config: ProductConfig | None
) -> dict[ProductConfig, list[int]]:
    """Return which batches, (count, rows, columns), are cut alike: all of them where a configuration is given."""
    found: dict[ProductConfig, list[int]] = {}
    for i, batch in enumerate(batches):
        own = config or configuration(batch.device, itemsize, batch.shape[-2])
        found.setdefault(own, []).append(i)
    return found


class _Item(NamedTuple):
    """One product, or a batch: aligned operands, (batch, n, k) and (batch, k, n), and where it goes.

    Attributes:
        A: Left operand.
        B: Right operand.
        C: What is added, rows contiguous; ``target`` where there is none.
        target: What the kernel writes, (batch, n, n).
        out: The result, where it is not the target itself.
        alpha: Factor of the product.
    """

    A: Tensor
    B: Tensor
    C: Tensor
    target: Tensor
    out: Tensor | None
    alpha: float

    @property
    def kind(self) -> tuple[Any, ...]:
        """What a kernel is compiled for."""
        transposed = (self.A.stride(2) != 1, self.B.stride(2) != 1)
        return (*(t.dtype for t in self.tensors), *transposed, self.C is not self.target)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, in the kernel's order."""
        return self.A, self.B, self.C, self.target

    @property
    def numbers(self) -> tuple[int, ...]:
        """What the kernel is told beside the tensors: n and k, then batch strides and row lengths."""
        _, n, k = self.A.shape
        lengths = (max(self.A.stride()[1:]), max(self.B.stride()[1:]), self.C.stride(1))
        strides = (
            number
            for t, length in zip(self.tensors, lengths, strict=False)
            for number in (t.stride(0), length)
        )
        return n, k, *strides


def _gram(X: Tensor, C: Tensor | None, alpha: float, side: str, out: Tensor) -> _Item:
    X = aligned(X)
    left, right = (X, X.mT) if side == "left" else (X.mT, X)
    return _item(left, right, C, alpha, out)


def _item(A: Tensor, B: Tensor, C: Tensor | None, alpha: float, out: Tensor) -> _Item:
    """Return a product of aligned operands; a result that is not aligned is computed elsewhere and copied."""
    batch, n, _ = A.shape
    in_place = out.is_contiguous() and out.shape[-1] == n and not out.data_ptr() % ALIGNMENT
    target = (
        out.view(batch, n, n) if in_place else torch.empty(batch, n, n, dtype=out.dtype, device=out.device)
    )
    addend = target if C is None else _row_major(aligned(C))
    return _Item(A, B, addend, target, None if in_place else out, alpha)


def _multiply(
    items: Iterable[_Item], beta: float, config: ProductConfig | None, *, diagonal: float = 0.0
) -> None:
    """Compute products, once for all that a kernel is compiled alike for; copy results to where they belong."""
    kinds: dict[Any, list[_Item]] = {}
    for item in items:
        if item.target.numel():
            cut = config or configuration(item.A.device, item.A.itemsize, item.A.shape[1])
            kinds.setdefault((cut, *item.kind), []).append(item)
    for (cut, *_, a_transposed, b_transposed, has_addend), members in kinds.items():
        tiles = [len(item.A) * cut.upper_tiles(item.A.shape[1]) for item in members]
        table = _table(members, tiles) if len(members) > 1 else None
        launch(
            symmetric_product_kernel,
            (sum(tiles),),
            (
                *members[0].tensors,
                *members[0].numbers,
                *(table, len(members), members[0].alpha, beta, diagonal),
            ),
            cut,
            reached=tuple(tensor for item in members for tensor in item.tensors),
            A_TRANSPOSED=a_transposed,
            B_TRANSPOSED=b_transposed,
            HAS_ADDEND=has_addend,
            HAS_DIAGONAL=diagonal != 0,
            PRECISION=cut.float32,
            BLOCK=cut.block,
            BLOCK_K=cut.block_k,
            EVEN=all(
                not n % cut.block and not k % cut.block_k for _, n, k in (item.A.shape for item in members)
            ),
        )
        for item in members:
            if item.out is not None:
                *_, rows, columns = item.out.shape
                item.out.copy_(item.target[:, :rows, :columns].reshape(item.out.shape))


def _table(items: Sequence[_Item], tiles: Sequence[int]) -> Tensor:
    rows = []
    for start, item in zip(accumulate(tiles[:-1], initial=0), items, strict=True):
        addresses = (tensor.data_ptr() for tensor in item.tensors)
        row = (start, *item.numbers, *addresses, c_int32.from_buffer(c_float(item.alpha)).value)
        rows.append(row + (0,) * (_WIDTH.value - len(row)))
    return kept_table(tuple(rows), items[0].A.device)


def _row_major(C: Tensor) -> Tensor:
    return C if C.stride(2) == 1 else C.contiguous()


@triton.jit(do_not_specialize=("count", "diagonal"))
def symmetric_product_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    out_ptr,
    n,
    k,
    a_batch,
    a_length,
    b_batch,
    b_length,
    c_batch,
    c_length,
    table_ptr,
    count,
    alpha,
    beta,
    diagonal,
    A_TRANSPOSED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    HAS_ADDEND: tl.constexpr,
    HAS_DIAGONAL: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Compute one tile of one matrix, and store it and its mirror image."""
    tile, row_ptr = tl.program_id(0), a_ptr
    if table_ptr is not None:
        row_ptr = find_row(table_ptr, _WIDTH, count, tile)
        tile -= load_operand(row_ptr).to(tl.int32)
        n, k = size_in_table(row_ptr, 1, True), size_in_table(row_ptr, 2, True)
        a_batch, a_length = _batch(row_ptr, 3), size_in_table(row_ptr, 4, True)
        b_batch, b_length = _batch(row_ptr, 5), size_in_table(row_ptr, 6, True)
        c_batch, c_length = _batch(row_ptr, 7), size_in_table(row_ptr, 8, True)
        a_ptr, b_ptr = tensor_in_table(row_ptr, 9, a_ptr, True), tensor_in_table(row_ptr, 10, b_ptr, True)
        c_ptr = tensor_in_table(row_ptr, 11, c_ptr, True)
        out_ptr = tensor_in_table(row_ptr, 12, out_ptr, True)
        alpha = load_operand(row_ptr + 13).to(tl.int32).to(tl.float32, bitcast=True)
    tiles = triangle(tl.cdiv(n, BLOCK))
    matrix = (tile // tiles).to(tl.int64)
    j, i = upper_tile(tile % tiles)
    a_ptr += matrix * a_batch
    b_ptr += matrix * b_batch
    a_row, a_column = (1, a_length) if A_TRANSPOSED else (a_length, 1)
    b_row, b_column = (1, b_length) if B_TRANSPOSED else (b_length, 1)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    acc = add_product(
        acc, a_ptr, a_row, a_column, b_ptr, b_row, b_column, i, j, n, n, k, PRECISION, BLOCK, BLOCK_K, EVEN
    )
    acc *= alpha
    if HAS_ADDEND:
        acc += beta * load_tile(c_ptr + matrix * c_batch, i, j, n, n, c_length, BLOCK, EVEN)
    if HAS_DIAGONAL:
        if i == j:
            r = tl.arange(0, BLOCK)
            acc += tl.where(r[:, None] == r[None, :], diagonal, 0.0)
    store_mirrored(out_ptr + matrix * n * n, acc, i, j, n, n, BLOCK, EVEN)


@triton.jit
def _batch(row_ptr, place):
    """Return the distance between matrices of a batch."""
    return tl.multiple_of(load_operand(row_ptr + place), 16)
