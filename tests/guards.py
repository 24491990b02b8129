"""Guard bands: tensors of any shape and strides inside a larger buffer of NaN that nobody may write."""

import torch
from torch import Tensor

from tests.poison import fill_poison

BAND = 96


class Guarded:
    """A copy of a tensor, strides and all, between bands of NaN (0x55 bytes for integers).

    What lies between the elements of a tensor with gaps is a band as well.

    Attributes:
        tensor: The copy.
    """

    def __init__(self, like: Tensor) -> None:
        reach = sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True))
        length = 2 * BAND + (reach + 1 if like.numel() else 0)
        self._buffer = fill_poison(torch.empty(length, dtype=like.dtype, device=like.device))
        self.tensor = self._buffer.as_strided(like.shape, like.stride(), BAND)
        inside = torch.zeros(length, dtype=torch.bool, device=like.device)
        inside.as_strided(like.shape, like.stride(), BAND).fill_(True)
        self._band = ~inside
        _without_expansion(self.tensor).copy_(_without_expansion(like))
        self._before = self._buffer.clone()

    def assert_intact(self, name: str) -> None:
        """Require every bit outside the tensor to be as it was."""
        changed = (bits(self._buffer) != bits(self._before)) & self._band
        assert not changed.any(), (
            f"{name}: {int(changed.sum())} elements outside the tensor were written, "
            f"the first one {int(changed.nonzero()[0]) - BAND} elements from its start"
        )

    def assert_unchanged(self, name: str) -> None:
        """Require the tensor's own bits to be as they were, too."""
        self.assert_intact(name)
        assert torch.equal(bits(self._buffer), bits(self._before)), f"{name} was written, it is only an input"


def bits(tensor: Tensor) -> Tensor:
    """Return a tensor's bit patterns as integers, so that NaN equals itself and -0 differs from 0."""
    if tensor.dtype == torch.bool:
        return tensor
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(integers[tensor.element_size()])


def _without_expansion(tensor: Tensor) -> Tensor:
    """Return one element for each place in memory along expanded dimensions."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor
