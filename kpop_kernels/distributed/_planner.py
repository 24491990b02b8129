"""Where each parameter is updated: decided by its layout, its cost, and nothing that only one rank knows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ._layout import Layout, length, rows_in_steps
from ._ownership import Loads, Task, assign

if TYPE_CHECKING:
    from ..optim._base import MatrixOptimizer

SMALLEST_SPLIT = 1 << 12
"""Elements from which a replicated parameter whose elements are updated for themselves has no single owner."""


@dataclass(frozen=True)
class Place:
    """Where a parameter is updated.

    Attributes:
        layout: Which rank holds what of it; if each rank updates a part, which part.
        owner: The rank that updates it whole; None if each rank updates a part.
        granule: Consecutive elements that are updated together where each rank updates a part.
        replicated: Whether every rank holds the whole parameter.
    """

    layout: Layout
    owner: int | None
    granule: int = 1
    replicated: bool = False


@dataclass(frozen=True)
class Demand:
    """What placing a parameter takes.

    Attributes:
        layout: Which rank holds what of it.
        granule: Consecutive elements that are updated together; None is all of them.
        task: The whole work and state.
    """

    layout: Layout
    granule: int | None
    task: Task


def demand_of(
    optimizer: "MatrixOptimizer", parameter: Tensor, group: dict[str, Any], layout: Layout, like: Tensor
) -> Demand:
    """Return what placing a parameter takes.

    Args:
        optimizer: The optimizer.
        parameter: The parameter.
        group: Its group.
        layout: Its layout.
        like: A meta tensor of its whole shape that stands for it.
    """
    state = optimizer._new_state(like, group)
    memory = sum(
        value.numel() * value.element_size() for value in state.values() if isinstance(value, Tensor)
    )
    task = Task(optimizer._cost(parameter, group), memory)
    return Demand(layout, optimizer._granule(parameter, group), task)


def places(demands: Mapping[Tensor, Demand], loads: Loads) -> dict[Tensor, Place]:
    """Return the place of each parameter, and add what ranks are given to their loads."""
    result: dict[Tensor, Place] = {}
    whole: dict[Tensor, Demand] = {}
    for parameter, demand in demands.items():
        parts = None if demand.granule is None else _parts(parameter, demand.layout, demand.granule)
        if demand.granule is None or parts is None:
            whole[parameter] = demand
            continue
        result[parameter] = Place(parts, None, demand.granule, demand.layout.replicated)
        for rank, block in enumerate(parts.blocks):
            share = length(block) / max(1, parameter.numel())
            loads.add(rank, Task(demand.task.work * share, demand.task.memory * share))
    owners = assign([demand.task for demand in whole.values()], loads)
    for (parameter, demand), owner in zip(whole.items(), owners, strict=True):
        result[parameter] = Place(demand.layout, owner, replicated=demand.layout.replicated)
    return result


def _parts(parameter: Tensor, layout: Layout, granule: int) -> Layout | None:
    """Return which parts of a parameter ranks update by themselves: its shards, or rows if all have all of it.

    None is returned where shards are not consecutive, cut what belongs together, or are not worth it.
    """
    if layout.replicated:
        if parameter.numel() < SMALLEST_SPLIT or not parameter.is_contiguous():
            return None
        row = math.prod(layout.shape[1:])
        step = granule // math.gcd(row, granule)
        return Layout(layout.shape, rows_in_steps(layout.shape, len(layout.blocks), step))
    if granule == 1 and len(layout.shape) in (2, 3):
        return layout
    spans = [layout.flat_range(rank) for rank in range(len(layout.blocks))]
    return layout if all(span is not None and span[0] % granule == 0 for span in spans) else None
