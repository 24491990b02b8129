"""Tensors of any strides for kernels that want contiguous ones."""

from torch import Tensor


class dense:
    """Contiguous tensors to write, within a with statement; what had to be copied is copied back after it."""

    __slots__ = ("_contiguous", "_written")

    def __init__(self, *written: Tensor) -> None:
        self._written = written

    def __enter__(self) -> tuple[Tensor, ...]:
        self._contiguous = tuple([tensor.contiguous() for tensor in self._written])
        return self._contiguous

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            return
        for tensor, copy in zip(self._written, self._contiguous, strict=True):
            if copy is not tensor:
                tensor.copy_(copy)
