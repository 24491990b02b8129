"""Which rank does the work of which parameter, so that none has much more to do or to keep than another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_Pair = tuple[float, float]
"""Work and memory, in units of the mean over ranks."""

_NOTHING: _Pair = (0.0, 0.0)

_EXCHANGES = 8
"""Most exchanges for each rank: a bound on time, which real models do not reach."""

_GAIN = 1e-9
"""Least gain of an exchange, above rounding: without one the same tasks could go around for ever."""


@dataclass(frozen=True)
class Task:
    """What owning a parameter takes.

    Attributes:
        work: Operations a step.
        memory: Bytes of state.
    """

    work: float
    memory: float


@dataclass
class Loads:
    """What each rank has been given so far."""

    work: list[float]
    memory: list[float] = field(default_factory=list)

    @classmethod
    def none(cls, ranks: int) -> "Loads":
        """Return the loads of ranks that own nothing."""
        return cls([0.0] * ranks, [0.0] * ranks)

    def add(self, rank: int, task: Task) -> None:
        """Give a task to a rank."""
        self.work[rank] += task.work
        self.memory[rank] += task.memory


def assign(tasks: Sequence[Task], loads: Loads) -> list[int]:
    """Give each task an owner and add it to the owner's load: longest processing time first, then exchanges.

    A rank's load is the larger of its work and its memory, each in units of the mean over ranks. Tasks are taken
    from the largest to the smallest, ties in their order; each goes to the rank whose load stays smallest, then
    the sum of its work and memory, then the lowest rank. Then, as long as that lessens the larger load of both,
    the busiest rank gives a task to another rank or changes one with it. The result is a function of the
    arguments alone, so all ranks agree without a word.

    Args:
        tasks: What is to be given away.
        loads: What ranks have already. Updated.

    Returns:
        The owner of each task.
    """
    ranks = range(len(loads.work))
    work = (sum(task.work for task in tasks) + sum(loads.work)) / len(ranks) or 1.0
    memory = (sum(task.memory for task in tasks) + sum(loads.memory)) / len(ranks) or 1.0
    sizes = [(task.work / work, task.memory / memory) for task in tasks]
    given = [(w / work, m / memory) for w, m in zip(loads.work, loads.memory, strict=True)]
    owners = [0] * len(tasks)
    for i in sorted(range(len(tasks)), key=lambda i: _order(sizes[i]), reverse=True):
        owners[i] = min(ranks, key=lambda r: _order(_sum(given[r], sizes[i])))
        given[owners[i]] = _sum(given[owners[i]], sizes[i])
    _exchange(owners, sizes, given)
    for task, owner in zip(tasks, owners, strict=True):
        loads.add(owner, task)
    return owners


def _exchange(owners: list[int], sizes: Sequence[_Pair], given: list[_Pair]) -> None:
    """Relieve the busiest rank as long as one move or one change of tasks does."""
    for _ in range(_EXCHANGES * len(given)):
        busiest = max(range(len(given)), key=lambda r: (*_order(given[r]), -r))
        kinds = _kinds(owners, sizes, len(given))
        choice = _best_change(busiest, kinds, given)
        if choice is None:
            return
        other, out, back = choice
        change = _difference(out, back or _NOTHING)
        given[busiest], given[other] = _difference(given[busiest], change), _sum(given[other], change)
        owners[kinds[busiest][out]] = other
        if back is not None:
            owners[kinds[other][back]] = busiest


def _best_change(
    busiest: int, kinds: Sequence[Mapping[_Pair, int]], given: Sequence[_Pair]
) -> tuple[int, _Pair, _Pair | None] | None:
    """Return the rank, the size of a task for it and of one back, or None, that lessen the larger load most."""
    least, choice = _order(given[busiest])[0] - _GAIN, None
    for other in range(len(given)):
        for out in kinds[busiest] if other != busiest else ():
            for back in (None, *kinds[other]):
                change = _difference(out, back or _NOTHING)
                load = max(*_difference(given[busiest], change), *_sum(given[other], change))
                if load < least:
                    least, choice = load, (other, out, back)
    return choice


def _kinds(owners: Sequence[int], sizes: Sequence[_Pair], ranks: int) -> list[dict[_Pair, int]]:
    """Return for each rank the sizes of tasks that it owns, each with the first task of that size."""
    kinds: list[dict[_Pair, int]] = [{} for _ in range(ranks)]
    for i, owner in enumerate(owners):
        kinds[owner].setdefault(sizes[i], i)
    return kinds


def _order(size: _Pair) -> _Pair:
    return max(size), sum(size)


def _sum(a: _Pair, b: _Pair) -> _Pair:
    return a[0] + b[0], a[1] + b[1]


def _difference(a: _Pair, b: _Pair) -> _Pair:
    return a[0] - b[0], a[1] - b[1]


def imbalance(loads: Sequence[float]) -> float:
    """Return the largest load over the mean load; 1 is even."""
    total = sum(loads)
    return max(loads) * len(loads) / total if total else 1.0
