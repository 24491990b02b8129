"""The compiled kernels, and what every launcher needs to call them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ... import _native

FLOATS = {
    torch.float32: _native.Float.float32,
    torch.bfloat16: _native.Float.bfloat16,
    torch.float16: _native.Float.float16,
}

_kernels = _native.Cpu()


def kernels() -> _native.Cpu:
    """Return the kernels in use: the best instruction set of this processor, or the one named by `using`."""
    return _kernels


@contextmanager
def using(isa: str) -> Iterator[None]:
    """Use the kernels of one instruction set: "avx512", "avx2" or "baseline".

    Raises:
        ValueError: This processor or this build has no kernels of that name.
    """
    global _kernels
    before, _kernels = _kernels, _native.Cpu(isa)
    try:
        yield
    finally:
        _kernels = before


@contextmanager
def dense(*written: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield contiguous tensors to write; what had to be copied is copied back."""
    contiguous = tuple(tensor.contiguous() for tensor in written)
    yield contiguous
    for tensor, copy in zip(written, contiguous, strict=True):
        if copy is not tensor:
            tensor.copy_(copy)


def random_stream(seed: int, step: int | Tensor, stream: int, offset: int) -> _native.RandomStream:
    """Return the name of a tensor's random numbers; the dispatcher passes seeds as signed integers."""
    return _native.RandomStream(
        seed=seed & 0xFFFFFFFFFFFFFFFF, step=int(step) & 0xFFFFFFFF, stream=stream, offset=offset
    )


def threads() -> int:
    """Return the number of threads that torch would use."""
    return torch.get_num_threads()
