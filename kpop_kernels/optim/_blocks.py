"""Tensors cut into equal blocks, so that long sides have several short factors instead of a long one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class Blocks:
    """How tensors (batch..., d_1, ..., d_k) are cut into blocks (s_1, ..., s_k), padded with zeros where needed.

    Attributes:
        batch: Leading dimensions.
        dims: Lengths of the dimensions that are cut.
        counts: Number of blocks along each.
    """

    batch: tuple[int, ...]
    dims: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Lengths of a block."""
        return tuple(-(-d // c) for d, c in zip(self.dims, self.counts, strict=True))

    @property
    def total(self) -> int:
        """Number of blocks of the whole tensor."""
        return math.prod(self.batch) * math.prod(self.counts)

    def split(self, tensor: Tensor) -> Tensor:
        """Return the blocks of a tensor (batch..., d_1, ..., d_k), as (blocks, s_1, ..., s_k)."""
        k, b = len(self.dims), len(self.batch)
        short = [c * s - d for c, s, d in zip(self.counts, self.sizes, self.dims, strict=True)]
        if any(short):
            tensor = pad(tensor, [amount for missing in reversed(short) for amount in (0, missing)])
        grid = [length for pair in zip(self.counts, self.sizes, strict=True) for length in pair]
        tensor = tensor.reshape(*self.batch, *grid)
        order = [*range(b), *(b + 2 * i for i in range(k)), *(b + 2 * i + 1 for i in range(k))]
        return tensor.permute(order).reshape(self.total, *self.sizes)

    def join(self, blocks: Tensor) -> Tensor:
        """Return the tensor that was split into these blocks, without the padding."""
        k, b = len(self.dims), len(self.batch)
        tensor = blocks.reshape(*self.batch, *self.counts, *self.sizes)
        order = [
            *range(b),
            *(i for pair in zip(range(b, b + k), range(b + k, b + 2 * k), strict=True) for i in pair),
        ]
        padded = [c * s for c, s in zip(self.counts, self.sizes, strict=True)]
        tensor = tensor.permute(order).reshape(*self.batch, *padded)
        for i, d in enumerate(self.dims):
            tensor = tensor.narrow(b + i, 0, d)
        return tensor


def cut(batch: Sequence[int], dims: Sequence[int], whole: Sequence[bool], block_size: int) -> Blocks:
    """Return the blocks of a shape: as few and as equal as a largest block allows.

    Args:
        batch: Leading dimensions.
        dims: Lengths of the dimensions that are cut.
        whole: Dimensions that are not cut.
        block_size: Longest side of a block.
    """
    counts = tuple(1 if w else -(-d // block_size) for d, w in zip(dims, whole, strict=True))
    return Blocks(tuple(batch), tuple(dims), counts)
