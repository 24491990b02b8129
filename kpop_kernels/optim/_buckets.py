"""Which parameters share one call of an operator."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

MAX_ELEMENTS = 1 << 24
"""Elements that one call takes at most, unless a single tensor has more: it bounds the memory of temporaries."""


class Work(NamedTuple):
    """A parameter that is to be updated; ``state["step"]`` already counts this step.

    Attributes:
        parameter: The parameter.
        grad: Its gradient.
        state: Its state.
        group: Its hyper-parameters.
        found_inf: On the device, whether the gradient is not finite, so that nothing may change; None if it is.
    """

    parameter: Tensor
    grad: Tensor
    state: dict[str, Any]
    group: dict[str, Any]
    found_inf: Tensor | None = None


def buckets(work: Sequence[Work], operand: Callable[[Work], Tensor]) -> Iterator[list[Work]]:
    """Yield work that can share a call: of one group, whose operands have one dtype and device.

    Args:
        work: What is to be done.
        operand: Returns the tensor on which the operator would be called.
    """
    open_buckets: dict[tuple[Any, ...], list[Work]] = {}
    elements: dict[tuple[Any, ...], int] = {}
    for item in work:
        tensor = operand(item)
        key = (id(item.group), tensor.dtype, tensor.device)
        if elements.get(key, 0) + tensor.numel() > MAX_ELEMENTS and key in open_buckets:
            yield open_buckets.pop(key)
            elements[key] = 0
        open_buckets.setdefault(key, []).append(item)
        elements[key] = elements.get(key, 0) + tensor.numel()
    yield from open_buckets.values()


def keep(item: Work, entries: dict[str, Tensor]) -> None:
    """Put entries into the state of a parameter, unless its gradient turned out not to be finite."""
    for key, tensor in entries.items():
        if item.found_inf is not None:
            tensor = torch.where(item.found_inf == 0, tensor, item.state[key])
        item.state[key] = tensor
