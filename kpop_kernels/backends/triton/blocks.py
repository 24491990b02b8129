"""Quantization blocks as the rows of a program's tile."""

from typing import Any

import triton
import triton.language as tl

from ...tuning import BlockwiseConfig
from .launch import launch

SMALLEST_NORMAL = tl.constexpr(2.0**-126)


def launch_on_blocks(
    kernel: Any,
    arguments: tuple[Any, ...],
    n: int,
    block_size: int,
    config: BlockwiseConfig,
    **constants: Any,
) -> None:
    """Launch a kernel over the blocks of n elements; a program takes ``config.blocks(block_size)`` of them."""
    blocks = config.blocks(block_size)
    launch(
        kernel,
        (triton.cdiv(n, blocks * block_size),),
        arguments,
        config,
        BLOCKS=blocks,
        BLOCK_SIZE=block_size,
        COLUMNS=columns_of(block_size),
        **constants,
    )


def columns_of(block_size: int) -> int:
    """Return the columns of a tile whose rows are blocks."""
    return int(triton.next_power_of_2(block_size))


#        0    1    ...   BLOCK_SIZE  COLUMNS     A program is BLOCKS blocks. A thread holds a piece of a row,
#   0  [ x x | x x | ...     ] . . ] -> lo, hi   and the range goes through the row's threads by shuffles.
#   1  [ x x | x x | ...     ] . . ] -> lo, hi   COLUMNS is BLOCK_SIZE but where that is no power of two.
@triton.jit
def tile(program, n, BLOCKS: tl.constexpr, BLOCK_SIZE: tl.constexpr, COLUMNS: tl.constexpr):
    """Return a program's first block, its elements from there on, and which of them exist.

    The start has 64 bits, the offsets from it 32: arrays may have more than 2³¹ elements, a program has few.
    """
    first_block = program.to(tl.int64) * BLOCKS
    columns = tl.arange(0, COLUMNS)[None, :]
    offsets = tl.arange(0, BLOCKS)[:, None] * BLOCK_SIZE + columns
    inside = offsets < n - first_block * BLOCK_SIZE
    if COLUMNS != BLOCK_SIZE:
        inside = inside & (columns < BLOCK_SIZE)
    return first_block, offsets, inside


@triton.jit
def block_tile(program, n, BLOCKS: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """Return a program's blocks, counted from its first one, and which of them exist."""
    blocks = tl.arange(0, BLOCKS)
    return blocks, blocks * BLOCK_SIZE < n - program.to(tl.int64) * (BLOCKS * BLOCK_SIZE)


@triton.jit
def flush(x):
    """Return the values with subnormals as 0."""
    return tl.where(tl.abs(x) < SMALLEST_NORMAL, 0.0, x)
