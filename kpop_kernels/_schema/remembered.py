"""What the checks of a call see, in a form that can be remembered: alike calls need not be checked again."""

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

_VALUES = frozenset({int, float, bool, str, type(None), torch.dtype})
"""Types of the other arguments whose checks depend on nothing but the value."""


class Examined(NamedTuple):
    """The arguments of a call.

    Attributes:
        signature: All that decides whether the checks pass, which backend serves and what the results are.
        own_memory: Whether nothing stands against writing some tensors while others are read: none wants a
            gradient, and each that is written, none of them expanded, has a storage of its own. False also where
            that is not known at once.
    """

    signature: tuple[Any, ...]
    own_memory: bool


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
    written: list[int] = []
    read: list[int] = []
    expanded, differentiable = False, torch.is_grad_enabled()
    wants_gradient = False
    for name, value in chain(zip(parameters, args, strict=False), kwargs.items()):
        writing = name in writes
        storages = written if writing else read
        if type(value) is list:
            seen.append(len(value))
        else:
            value = (value,)
        for item in value:
            kind = type(item)
            if kind is Tensor or kind is Parameter:
                shape = item.shape
                if shape:
                    seen += shape, item.dtype, item.is_cpu or item.device
                elif item.is_complex():
                    return None
                else:
                    # Counts are refused below 1, where they can be read without waiting for a device.
                    seen += item.dtype, item.item() >= 1 if item.is_cpu else item.device
                storages.append(item.untyped_storage().data_ptr())
                if writing and not item.is_contiguous() and 0 in item.stride():
                    expanded = True
                if differentiable and item.requires_grad:
                    wants_gradient = True
            elif kind in _VALUES:
                seen.append(item)
            else:
                return None
    own = set(written)
    own_memory = len(own) == len(written) and own.isdisjoint(read) and not expanded and not wants_gradient
    return Examined(tuple(seen), own_memory)
