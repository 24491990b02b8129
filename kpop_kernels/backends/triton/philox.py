"""The 16 random bits that an element of a tensor owns, by its place in the whole logical tensor."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .scalars import scalar_argument, scalar_value

UNSPECIALIZED = ("seed", "step", "stream", "offset")
"""Kernel parameters that a kernel is not compiled anew for."""


def random_arguments(seed: int, step: Tensor | None, device: torch.device) -> tuple[Any, ...]:
    """Return seed and step as `random16` takes them."""
    return unsigned(seed), 0 if step is None else scalar_argument(step, device)


def unsigned(seed: int) -> int:
    """Return a seed, which the dispatcher passes as a signed integer, as kernels take it."""
    return seed & 0xFFFFFFFFFFFFFFFF


def is_shifted(offset: int) -> bool:
    """Tell whether the eight elements of a call of the generator begin inside a group of eight."""
    return offset % 8 != 0


@triton.jit
def calls_of(first, row, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the number of every eight elements of a tile, whose rows begin ``row`` elements apart."""
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS // 8)[None, :]
    return (first >> 3) + (rows * (row // 8) + columns)


@triton.jit
def random16(calls, seed, step, stream, offset, SHIFTED: tl.constexpr):
    """Return 16 random bits for every element of a tile; ``calls`` are those of `calls_of`, from ``offset`` on.

    Eight elements share a call of Philox: key seed, counter (element >> 3, step, stream), and entry element & 7
    of the four output words read as eight 16-bit numbers, low half first. Where the offset is no multiple of 8,
    eight elements need the end of one call and the beginning of the next.
    """
    # Both parts are shifted before they are added: offset + first may not fit 63 bits.
    calls = (offset.to(tl.int64) >> 3) + calls
    step = scalar_value(step).to(tl.int64).to(tl.uint32)
    w0, w1, w2, w3 = philox_words(calls, seed, step, stream)
    if SHIFTED:
        w4, w5, w6, w7 = philox_words(calls + 1, seed, step, stream)
        w0, w1, w2, w3 = _shifted(w0, w1, w2, w3, w4, w5, w6, w7, offset.to(tl.int32))
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    return tl.interleave(words & 0xFFFF, words >> 16).to(tl.int32)


@triton.jit
def philox_words(calls, seed, step, stream):
    """Return the four output words of every call."""
    return tl.philox(
        seed.to(tl.uint64), calls.to(tl.uint32), (calls >> 32).to(tl.uint32), step, stream.to(tl.uint32)
    )


@triton.jit
def _shifted(w0, w1, w2, w3, w4, w5, w6, w7, halves):
    """Return four of eight words, from ``halves & 7`` half words on."""
    four, two, one = (halves & 4) != 0, (halves & 2) != 0, (halves & 1) != 0
    w0, w1, w2 = tl.where(four, w2, w0), tl.where(four, w3, w1), tl.where(four, w4, w2)
    w3, w4, w5 = tl.where(four, w5, w3), tl.where(four, w6, w4), tl.where(four, w7, w5)
    w0, w1, w2 = tl.where(two, w1, w0), tl.where(two, w2, w1), tl.where(two, w3, w2)
    w3, w4 = tl.where(two, w4, w3), tl.where(two, w5, w4)
    return (
        tl.where(one, w0 >> 16 | w1 << 16, w0),
        tl.where(one, w1 >> 16 | w2 << 16, w1),
        tl.where(one, w2 >> 16 | w3 << 16, w2),
        tl.where(one, w3 >> 16 | w4 << 16, w3),
    )
