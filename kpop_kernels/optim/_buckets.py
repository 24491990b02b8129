"""Which parameters share one call of an operator."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor

MAX_ELEMENTS = 1 << 24
"""Elements that one call takes at most, unless a single tensor has more: it bounds the memory of temporaries."""


class Work(NamedTuple):
    """A parameter that is to be updated; ``state["step"]`` already counts this step."""

    parameter: Tensor
    grad: Tensor
    state: dict[str, Any]
    group: dict[str, Any]


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
