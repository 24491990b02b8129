"""The compiled kernels on a tensor's device, and what every launcher needs to call them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..._native import RandomStream, dynamic_map_bytes
from .._dense import dense as dense
from .._dense import dense_lists as dense_lists
from .._items import FLOATS as FLOATS
from .._items import block_items as block_items
from .._lists import groups

if TYPE_CHECKING:
    from ..._native import Cuda

Kernels = Callable[[torch.device], AbstractContextManager["Cuda"]]


@contextmanager
def on_device(device: torch.device) -> Iterator[Cuda]:
    """Make a device the current one and yield the kernels on its current stream."""
    from ..._native import Cuda

    with torch.cuda.device(device):
        yield Cuda(torch.cuda.current_stream(device).cuda_stream)


_kernels: Kernels = on_device


def kernels(device: torch.device) -> AbstractContextManager[Cuda]:
    """Return the kernels that every launcher of this folder calls; those of `on_device` unless a test runs."""
    return _kernels(device)


@contextmanager
def run_by(replacement: Kernels) -> Iterator[None]:
    """Let the launchers call other kernels."""
    global _kernels
    before, _kernels = _kernels, replacement
    try:
        yield
    finally:
        _kernels = before


class Number:
    """A 0-d tensor as a kernel takes it: by its address on the kernel's device, by value from elsewhere.

    Keep it until the kernel has been queued: it owns the memory.

    Attributes:
        value: The number, or 0.
        address: Where it is in device memory, or 0.
    """

    def __init__(self, number: Tensor | None, dtype: torch.dtype, device: torch.device) -> None:
        self._memory = number.to(dtype) if number is not None and number.device == device else None
        self.address = 0 if self._memory is None else self._memory.data_ptr()
        self.value = 0 if number is None or self.address else number.item()


def sharing(device: torch.device, *columns: Sequence[Tensor | None]) -> list[list[int]]:
    """Return which items have the same numbers in all columns, as far as the host knows."""

    def known(number: Tensor | None) -> Hashable:
        if number is None:
            return None
        return ("on the device", id(number)) if number.device == device else number.item()

    return list(groups([tuple(map(known, row)) for row in zip(*columns, strict=True)]).values())


def random_stream(seed: int, step: Number, stream: int = 0, offset: int = 0) -> RandomStream:
    """Return the name of a tensor's random numbers; the dispatcher passes seeds as signed integers."""
    return RandomStream(
        seed=seed & 0xFFFFFFFFFFFFFFFF, step=int(step.value) & 0xFFFFFFFF, stream=stream, offset=offset
    )


@cache
def dynamic_map(signed: bool, device: torch.device) -> Tensor:
    """Return the tables of the dynamic map in the memory of a device."""
    return torch.frombuffer(bytearray(dynamic_map_bytes(signed)), dtype=torch.uint8).to(device, copy=True)
