"""Where each parameter is updated: decided by its layout, its cost, and nothing that only one rank knows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ._layout import Layout, among_replicas, length
from ._ownership import Loads, Task, assign

if TYPE_CHECKING:
    from ..optim._base import MatrixOptimizer

SMALLEST_SPLIT = 1 << 12
"""Elements from which replicas share a parameter whose elements are updated for themselves."""


@dataclass(frozen=True)
class Place:
    """Where a parameter is updated.

    Attributes:
        home: Which rank holds what of it.
        layout: Which rank updates what of it if each updates a part, else ``home``.
        owner: The rank that updates it whole; None if each rank updates a part.
        granule: Consecutive elements that are updated together where each rank updates a part.
        replicated: Whether every rank holds the whole parameter.
        travels: Whether shards go to other ranks: to and from the owner, or among replicas of a shard.
    """

    home: Layout
    layout: Layout
    owner: int | None
    granule: int
    replicated: bool
    travels: bool

    @classmethod
    def of(cls, home: Layout, layout: Layout, owner: int | None, granule: int = 1) -> "Place":
        """Return the place that a layout and an owner make."""
        layout = home if layout == home else layout
        travels = not home.replicated and (owner is not None or layout is not home)
        return cls(home, layout, owner, granule, home.replicated, travels)

    def replicas(self, rank: int) -> list[int]:
        """Return the ranks that hold the same block as a rank, itself too."""
        return [other for other, block in enumerate(self.home.blocks) if block == self.home.blocks[rank]]


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
        result[parameter] = Place.of(demand.layout, parts, None, demand.granule)
        for rank, block in enumerate(parts.blocks):
            share = length(block) / max(1, parameter.numel())
            loads.add(rank, Task(demand.task.work * share, demand.task.memory * share))
    owners = assign([demand.task for demand in whole.values()], loads)
    for (parameter, demand), owner in zip(whole.items(), owners, strict=True):
        result[parameter] = Place.of(demand.layout, demand.layout, owner)
    return result


def _parts(parameter: Tensor, layout: Layout, granule: int) -> Layout | None:
    """Return which parts of a parameter ranks update by themselves: their shards, or rows of them among replicas.

    None is returned where parts are not consecutive, cut what belongs together, or are not worth it.
    """
    small = parameter.numel() < SMALLEST_SPLIT
    if layout.replicated and (small or not parameter.is_contiguous()):
        return None
    if granule > 1 or len(layout.shape) not in (2, 3):
        spans = [layout.flat_range(rank) for rank in range(len(layout.blocks))]
        if any(span is None or span[0] % granule for span in spans):
            return None
    row = math.prod(layout.shape[1:])
    return layout if small else among_replicas(layout, granule // math.gcd(row, granule))
