"""What the checks of a call see, in a form that can be remembered: alike calls need not be checked again."""

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import PLAIN

_VALUES = frozenset({int, float, bool, str, type(None), torch.dtype})
"""Types of the other arguments whose checks depend on nothing but the value."""


class Examined(NamedTuple):
    """The arguments of a call.

    Attributes:
        signature: All that decides whether the checks pass, which backend serves and what the results are.
        written: The tensors that are written, those in lists as well.
        read: The other tensors.
    """

    signature: tuple[Any, ...]
    written: list[Tensor]
    read: list[Tensor]


def examine(
    parameters: Iterable[str], writes: Collection[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Examined | None:
    """Return what the checks see of a call's arguments; None where that is more than can be remembered.

    Args:
        parameters: Names of the positional arguments, in order.
        writes: Names of the arguments that are written.
        args: Positional arguments, as torch's dispatcher converts them.
        kwargs: Arguments by name.
    """
    seen: list[Any] = [len(args), *kwargs]
    written: list[Tensor] = []
    read: list[Tensor] = []
    for name, value in chain(zip(parameters, args, strict=False), kwargs.items()):
        tensors = written if name in writes else read
        if type(value) is list:
            seen.append(len(value))
        else:
            value = (value,)
        for item in value:
            if type(item) in PLAIN:
                shape = item.shape
                if shape:
                    seen += shape, item.dtype, item.is_cpu or item.device
                elif item.is_complex():
                    return None
                else:
                    # Counts are refused below 1, where they can be read without waiting for a device.
                    seen += item.dtype, item.item() >= 1 if item.is_cpu else item.device
                tensors.append(item)
            elif type(item) in _VALUES:
                seen.append(item)
            else:
                return None
    return Examined(tuple(seen), written, read)
