"""What backends with compiled kernels share: they read and write contiguous memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor


@contextmanager
def dense(*written: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield contiguous tensors to write; what had to be copied is copied back."""
    contiguous = tuple(tensor.contiguous() for tensor in written)
    yield contiguous
    for tensor, copy in zip(written, contiguous, strict=True):
        if copy is not tensor:
            tensor.copy_(copy)
