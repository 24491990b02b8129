"""Launches of kernels that pass over the elements of tensors."""

from collections.abc import Sequence

from torch import Tensor

from . import _shader

_THREADS = 256
_ELEMENTS_A_GROUP = 4 * _THREADS

# Grid positions have 32 bits, and a dispatch that takes long is stopped while a display is attached.
_ELEMENTS_PER_LAUNCH = 2**28


def launch_pass(
    source_name: str,
    kernel_name: str,
    tensors: Sequence[Tensor],
    *others: Tensor | list[float],
    flags: Sequence[int] = (),
) -> None:
    """Launch a kernel on all elements of contiguous tensors of one size, in pieces if there are very many.

    The kernel's arguments are the tensors, a list of the number of elements and the flags, and the others.
    """
    numel = tensors[0].numel()
    for first in range(0, numel, _ELEMENTS_PER_LAUNCH):
        count = min(numel - first, _ELEMENTS_PER_LAUNCH)
        _shader.kernel(source_name, kernel_name)(
            *(tensor.view(-1)[first : first + count] for tensor in tensors),
            [count, *map(int, flags)],
            *others,
            threads=-(-count // _ELEMENTS_A_GROUP) * _THREADS,
            group_size=_THREADS,
        )
