"""Tensors of any strides for kernels that want contiguous ones."""

from collections.abc import Sequence

from torch import Tensor


class dense_lists:
    """Contiguous tensors to write, within a with statement; what had to be copied is copied back after it."""

    def __init__(self, *written: Sequence[Tensor]) -> None:
        self._written = written
        self._copies: list[tuple[Tensor, Tensor]] = []

    def __enter__(self) -> tuple[list[Tensor], ...]:
        return tuple([[self._contiguous(tensor) for tensor in tensors] for tensors in self._written])

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            for tensor, copy in self._copies:
                tensor.copy_(copy)

    def _contiguous(self, tensor: Tensor) -> Tensor:
        if tensor.is_contiguous():
            return tensor
        copy = tensor.contiguous()
        self._copies.append((tensor, copy))
        return copy


class dense:
    """`dense_lists` of a few tensors, each by itself."""

    def __init__(self, *written: Tensor) -> None:
        self._tensors = dense_lists(written)

    def __enter__(self) -> list[Tensor]:
        return self._tensors.__enter__()[0]

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._tensors.__exit__(error)
