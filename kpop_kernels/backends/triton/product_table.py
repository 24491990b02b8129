"""Matrix products of many shapes in one launch.

A program computes one tile. One matrix, or a batch of one shape, is described by the kernel's arguments; several
shapes by a table on the device with one row each, in which a program searches for its tile.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import RotationConfig, rotation_config
from .launch import launch
from .memory import load_as_float32, load_operand
from .scalars import scalar_value

WIDTH = tl.constexpr(24)
"""Numbers in a row of the table: first tile, m, n, k, a's and b's batch stride, addresses of a, b and the rest."""

SCALARS = tl.constexpr(15)
"""Place in a row of the address of an item's scalars."""

EXTRA = tl.constexpr(16)
"""Place in a row of what else the end of the kernel needs."""

ROWS_OF_TILES = tl.constexpr(8)

ALIGNMENT = 16
"""Addresses, in bytes, and lengths must be multiples of it for wide accesses."""

Scalars = Tensor | tuple[Any, ...]


@dataclass(frozen=True)
class Product:
    """One product of a launch: matrices, or batches of them, m × k times k × n.

    Attributes:
        a: Left factor as it is stored: m × k, or k × m where the kernel transposes it; one or one a matrix.
        b: Right factor, k × n or n × k.
        size: Number of matrices and m, n, k.
        elements: What the end of the kernel reads and writes, each matrices × m × n and contiguous.
        scalars: Float32 scalars of the item on the device, or for a launch of one item numbers and 0-d tensors.
        extra: Integers and further tensors of the item, whose addresses the kernel gets; with them it gets a table
            even where there is one item.
    """

    a: Tensor
    b: Tensor
    size: tuple[int, int, int, int]
    elements: tuple[Tensor, ...]
    scalars: Scalars = ()
    extra: tuple[Tensor | int, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, in the kernel's order."""
        return (self.a, self.b, *self.elements)

    @property
    def numbers(self) -> tuple[int, ...]:
        """What the kernel is told beside the tensors."""
        _, m, n, k = self.size
        return (m, n, k, *(t.shape[-2] * t.shape[-1] if t.ndim == 3 else 0 for t in (self.a, self.b)))

    @property
    def aligned(self) -> bool:
        """Whether every row of every tensor begins at a multiple of 16 bytes, and has one of 16 elements."""
        return not any(t.shape[-1] % ALIGNMENT or t.data_ptr() % ALIGNMENT for t in self.tensors)

    def tiles(self, config: RotationConfig) -> int:
        """Return the number of tiles of all matrices."""
        matrices, m, n, _ = self.size
        return matrices * config.tiles(m, n)


def launch_products(
    kernel: Any,
    products: Iterable[Product],
    *shared: Any,
    places: tuple[int, ...] = (),
    config: RotationConfig | None,
    **constants: Any,
) -> None:
    """Launch a kernel over products of any shapes, once for all that share dtypes and alignment.

    Args:
        kernel: Takes the tensors of a product, its numbers, the table with the number of its rows, scalars of
            the item, and shared ones.
        products: What to compute.
        *shared: Scalars that all items share.
        places: Which scalars of an item the kernel takes, for a launch without a table.
        config: How products are cut into tiles; None chooses.
        **constants: The kernel's own compile-time parameters.
    """
    for group in _alike(products):
        first = group[0]
        cut = config or rotation_config(_itemsize(first), (product.size[:3] for product in group))
        tiles = [product.tiles(cut) for product in group]
        table = _table(group, tiles) if len(group) > 1 or first.extra else None
        scalars = (first.scalars[place] for place in places)
        launch(
            kernel,
            (sum(tiles),),
            (*first.tensors, *first.numbers, table, len(group), *scalars, *shared),
            cut,
            reached=tuple(tensor for product in group for tensor in _reached(product)),
            ALIGNED=first.aligned,
            BLOCK_M=cut.block_m,
            BLOCK_N=cut.block_n,
            BLOCK_K=cut.block_k,
            **constants,
        )


def _alike(products: Iterable[Product]) -> Iterable[list[Product]]:
    """Return the products that have elements, those that a kernel is compiled alike for together."""
    groups: dict[Any, list[Product]] = {}
    for product in products:
        if all(product.size[:3]):
            kind = (*(tensor.dtype for tensor in product.tensors), product.aligned)
            groups.setdefault(kind, []).append(product)
    return groups.values()


def _reached(product: Product) -> tuple[Tensor, ...]:
    others = (product.scalars, *product.extra)
    return (*product.tensors, *(tensor for tensor in others if isinstance(tensor, Tensor)))


def _itemsize(product: Product) -> int:
    return max(product.a.itemsize, product.b.itemsize)


def _table(group: list[Product], tiles: list[int]) -> Tensor:
    starts = accumulate(tiles[:-1], initial=0)
    rows = []
    for start, product in zip(starts, group, strict=True):
        row = (start, *product.numbers, *map(_number, product.tensors))
        scalars = product.scalars if isinstance(product.scalars, Tensor) else 0
        row += (0,) * (SCALARS.value - len(row)) + (_number(scalars), *map(_number, product.extra))
        rows.append(row + (0,) * (WIDTH.value - len(row)))
    return kept_table(tuple(rows), group[0].a.device)


def _number(value: Tensor | int) -> int:
    return value.data_ptr() if isinstance(value, Tensor) else value


def kept_table(rows: tuple[tuple[int, ...], ...], device: torch.device) -> Tensor:
    """Return a table on the device; tables are kept, for a step of training often has the addresses of another."""
    if device.type != "cuda":
        return _kept(rows, device, None)
    if torch.cuda.is_current_stream_capturing():
        # Memory of a graph has its values when the graph is replayed: nothing else may read it.
        return to_device(rows, torch.int64, device)
    return _kept(rows, device, torch.cuda.current_stream(device))


@lru_cache(maxsize=256)
def _kept(rows: tuple[tuple[int, ...], ...], device: torch.device, stream: Any) -> Tensor:
    return to_device(rows, torch.int64, device)


def to_device(values: Sequence[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers as a tensor on the device, without waiting for it."""
    if device.type == "cpu":
        return torch.tensor(values, dtype=dtype)
    pinned = torch.tensor(values, dtype=dtype, pin_memory=True)
    if torch.cuda.is_current_stream_capturing():
        _captured.append(pinned)
    return pinned.to(device, non_blocking=True)


_captured: list[Tensor] = []
"""What is copied to the device again whenever a captured graph is replayed."""


@triton.jit
def find_row(table_ptr, width: tl.constexpr, count, number):
    """Return the row of a table for a tile or program: the last one whose first entry is not beyond its number."""
    low, high = 0 * count, count
    while high - low > 1:
        middle = (low + high) >> 1
        before = load_operand(table_ptr + middle * width) <= number
        low, high = tl.where(before, middle, low), tl.where(before, high, middle)
    return table_ptr + low * width


@triton.jit
def size_in_table(row_ptr, place, ALIGNED: tl.constexpr):
    """Return a size from a row of the table."""
    size = load_operand(row_ptr + place).to(tl.int32)
    if ALIGNED:
        size = tl.multiple_of(size, 16)
    return size


@triton.jit
def tensor_in_table(row_ptr, place, like_ptr, ALIGNED: tl.constexpr):
    """Return the address of a tensor from a row of the table."""
    ptr = load_operand(row_ptr + place).to(like_ptr.dtype)
    if ALIGNED:
        ptr = tl.multiple_of(ptr, 16)
    return ptr


@triton.jit
def extra_tensor(row_ptr, place: tl.constexpr, dtype: tl.constexpr):
    """Return the address of one of an item's further tensors."""
    return load_operand(row_ptr + EXTRA + place).to(tl.pointer_type(dtype))


@triton.jit
def item_number(table_ptr, row_ptr, place: tl.constexpr, argument):
    """Return a scalar of an item, from where its row says they are or, without a table, from the argument."""
    if table_ptr is not None:
        value = load_as_float32(load_operand(row_ptr + SCALARS).to(tl.pointer_type(tl.float32)) + place)
    else:
        value = scalar_value(argument)
    return value


#   0 2 4 6 | 16 ..     Tiles are numbered down the columns of bands of ROWS_OF_TILES rows of tiles:
#   1 3 5 7 | 17        programs that run at the same time share rows of a and columns of b in the cache.
@triton.jit
def tile_of(tile, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return which matrix a tile of a batch is in, and its row and column there."""
    high, wide = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    matrix = tile // (high * wide)
    tile -= matrix * (high * wide)
    band = tile // (ROWS_OF_TILES * wide)
    rows = tl.minimum(high - band * ROWS_OF_TILES, ROWS_OF_TILES)
    tile -= band * ROWS_OF_TILES * wide
    return matrix.to(tl.int64), band * ROWS_OF_TILES + tile % rows, tile // rows
