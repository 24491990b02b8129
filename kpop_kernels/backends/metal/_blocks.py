"""Launches of kernels over tensors that are cut into blocks."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from . import _shader

NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
"""How the kernels' host names call element types."""

_ELEMENTS_A_THREAD = 8
_THREADS = 256

# Grid positions have 32 bits, and a dispatch that takes long is stopped while a display is attached.
_ELEMENTS_PER_LAUNCH = 2**28


class RandomStream(NamedTuple):
    """The random numbers of a tensor, the step aside.

    Attributes:
        seed: 64-bit key of the generator; the dispatcher passes it as a signed integer.
        stream: Number of the tensor.
        offset: Index of its first element in the whole tensor.
    """

    seed: int
    stream: int
    offset: int

    def integers(self, start: int) -> list[int]:
        """Return what kernels read, from an element of the tensor on, within the range of int64."""
        signed = (self.seed + 2**63) % 2**64 - 2**63
        return [signed, self.stream, self.offset + start]


def launch_over_blocks(
    source_name: str,
    kernel_name: str,
    elements: Sequence[Tensor],
    blocks: Sequence[Tensor],
    *others: Tensor | list[int] | list[float],
    block_size: int,
    random: RandomStream | None = None,
    flags: Sequence[int] = (),
) -> None:
    """Launch a kernel on every block, in pieces if there are very many.

    The kernel's arguments are the tensors with one entry an element, those with one entry a block, a list of
    integers (number of elements, block size, random stream, flags), and the others.

    Args:
        source_name: Name of the Metal source.
        kernel_name: Host name of the kernel.
        elements: Contiguous tensors of equal size.
        blocks: Contiguous tensors with one number for each block.
        others: What the kernel reads besides.
        block_size: Elements of a block, a multiple of 8 up to 4096.
        random: The random numbers that the kernel draws.
        flags: More integers.
    """
    numel = elements[0].numel()
    threads_a_block = block_size // _ELEMENTS_A_THREAD
    blocks_a_group = max(1, _THREADS // threads_a_block)
    group_size = blocks_a_group * threads_a_block
    blocks_a_launch = _ELEMENTS_PER_LAUNCH // block_size
    for first in range(0, -(-numel // block_size), blocks_a_launch):
        start = first * block_size
        count = min(numel - start, blocks_a_launch * block_size)
        end = first - (-count // block_size)
        integers = [count, block_size, *(random.integers(start) if random else ()), *flags]
        _shader.kernel(source_name, kernel_name)(
            *(tensor.view(-1)[start : start + count] for tensor in elements),
            *(tensor[first:end] for tensor in blocks),
            integers,
            *others,
            threads=-(-(end - first) // blocks_a_group) * group_size,
            group_size=group_size,
        )


def bound_step(step: Tensor | None, device: torch.device) -> Tensor | list[int]:
    """Return a step as a kernel reads it: where it is, without waiting for the device."""
    if step is None:
        return [0]
    return step.to(torch.int64) if step.device == device else [int(step)]
