"""Lists of tensors in one launch: a table in device memory says which programs work on which item."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..._schema import OPERATORS
from ...tuning import BlockwiseConfig
from .blocks import columns_of
from .launch import launch
from .memory import load_operand
from .philox import is_shifted
from .product_table import ALIGNMENT, find_row, to_device


def grouped(single: Callable[..., None]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a function that launches for a list: it launches for one item after another into a CUDA graph.

    A graph would remember the address that the table was copied from, and not what was there.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        operator = OPERATORS[function.__name__]

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> None:
            if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
                for item in operator.items(args, kwargs):
                    single(**item)
            else:
                function(*args, **kwargs)

        return run

    return decorate


class Item(NamedTuple):
    """One item: its elements, its tensors in the kernel's order, and its place among random numbers if any."""

    n: int
    tensors: tuple[Tensor, ...]
    stream: int = 0
    offset: int | None = None


class _Kind(NamedTuple):
    """What a kernel is compiled for: items that share it go in one launch."""

    dtypes: tuple[torch.dtype, ...]
    aligned: bool
    shifted: bool | None


def launch_on_lists(
    kernel: Any,
    items: Sequence[Item],
    arguments: tuple[Any, ...],
    block_size: int,
    config: BlockwiseConfig,
    **constants: Any,
) -> None:
    """Launch a kernel over the blocks of all items; those that differ in dtype or alignment are launched apart.

    The kernel's first arguments are the table and the number of items, and its constants say their types.
    """
    kinds: dict[_Kind, list[Item]] = {}
    for item in items:
        if item.n:
            kinds.setdefault(_kind(item), []).append(item)
    blocks = config.blocks(block_size)
    for kind, members in kinds.items():
        table, programs = _table(members, blocks * block_size)
        launch(
            kernel,
            (programs,),
            (table, len(members), *arguments),
            config,
            reached=tuple(tensor for item in members for tensor in item.tensors),
            TYPES=tuple(TYPES[dtype] for dtype in kind.dtypes),
            ALIGNED=kind.aligned,
            BLOCKS=blocks,
            BLOCK_SIZE=block_size,
            COLUMNS=columns_of(block_size),
            **({} if kind.shifted is None else {"SHIFTED": kind.shifted}),
            **constants,
        )


def _kind(item: Item) -> _Kind:
    aligned = item.n % ALIGNMENT == 0 and all(t.data_ptr() % ALIGNMENT == 0 for t in item.tensors)
    shifted = None if item.offset is None else is_shifted(item.offset)
    return _Kind(tuple(tensor.dtype for tensor in item.tensors), aligned, shifted)


def _table(items: Sequence[Item], elements: int) -> tuple[Tensor, int]:
    """Return a row for each item, as `item_of` reads it, and the number of programs of so many elements."""
    rows, programs = [], 0
    for item in items:
        addresses = [tensor.data_ptr() for tensor in item.tensors]
        rows.append([programs, item.n, item.stream, item.offset or 0, *addresses])
        programs += triton.cdiv(item.n, elements)
    return to_device(rows, torch.int64, items[0].tensors[0].device), programs


TYPES = {
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.float64: tl.float64,
    torch.uint8: tl.uint8,
}


#   row:  first program | n | stream | offset | addresses of the tensors ...
@triton.jit
def item_of(table_ptr, items, TENSORS: tl.constexpr, ALIGNED: tl.constexpr):
    """Return the row of this program's item, the program's number within it, n, stream and offset."""
    program = tl.program_id(0)
    row_ptr = find_row(table_ptr, 4 + TENSORS, items, program)
    n = load_operand(row_ptr + 1)
    if ALIGNED:
        n = tl.multiple_of(n, 16)
    return row_ptr, program - load_operand(row_ptr), n, load_operand(row_ptr + 2), load_operand(row_ptr + 3)


@triton.jit
def tensor_of(row_ptr, number: tl.constexpr, TYPES: tl.constexpr, ALIGNED: tl.constexpr):
    """Return the pointer to an item's tensor, counted from 0."""
    pointer = load_operand(row_ptr + 4 + number).to(tl.pointer_type(TYPES[number]))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    return pointer
