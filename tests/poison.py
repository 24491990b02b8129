"""Uninitialized memory made visible: what the package allocates holds NaN, or bytes of 0x55 in integers.

A kernel that leaves a part of its output unwritten then fails every comparison, where fresh memory is often
zero and hides it.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

PACKAGE = "kpop_kernels"
ALLOCATORS = ((torch, "empty"), (torch, "empty_like"), (torch, "empty_strided"), (Tensor, "new_empty"))


def fill_poison(tensor: Tensor) -> Tensor:
    """Fill a tensor with NaN or, where there is none, with bytes of 0x55."""
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.fill_(float("nan"))
    if tensor.dtype == torch.bool:
        return tensor.fill_(True)
    return tensor.fill_(int.from_bytes(b"\x55" * tensor.element_size(), "little"))


@contextmanager
def poisoned_allocation() -> Iterator[None]:
    """Make the package's calls of ``torch.empty`` and its relatives return poison."""
    with ExitStack() as stack:
        for owner, name in ALLOCATORS:
            stack.enter_context(patch.object(owner, name, _poisoning(getattr(owner, name))))
        yield


def _poisoning(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def poisoning(*args: Any, **kwargs: Any) -> Tensor:
        tensor = allocate(*args, **kwargs)
        if torch.compiler.is_compiling():  # a traced call has no caller to look at
            return tensor
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return fill_poison(tensor) if caller.partition(".")[0] == PACKAGE else tensor

    return poisoning
