"""Which rank does the work of which parameter, so that none has much more to do or to keep than another."""

from collections.abc import Sequence
from dataclasses import dataclass, field


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
    """Give each task an owner and add it to the owner's load: longest processing time first, in two resources.

    Work and memory count in units of what all tasks and loads have of them together. Tasks are taken from the
    largest share of either to the smallest, ties in their order; each goes to the rank on which the larger of both
    loads stays smallest, then their sum, then the lowest rank. The result is a function of the arguments alone,
    so all ranks agree without a word.

    Args:
        tasks: What is to be given away.
        loads: What ranks have already. Updated.

    Returns:
        The owner of each task.
    """
    whole = Task(
        sum(task.work for task in tasks) + sum(loads.work) or 1.0,
        sum(task.memory for task in tasks) + sum(loads.memory) or 1.0,
    )

    def shares(work: float, memory: float) -> tuple[float, float]:
        x, y = work / whole.work, memory / whole.memory
        return max(x, y), x + y

    def size(i: int) -> tuple[float, float]:
        return shares(tasks[i].work, tasks[i].memory)

    owners = [0] * len(tasks)
    for i in sorted(range(len(tasks)), key=size, reverse=True):
        owners[i] = min(
            range(len(loads.work)),
            key=lambda r: shares(loads.work[r] + tasks[i].work, loads.memory[r] + tasks[i].memory),
        )
        loads.add(owners[i], tasks[i])
    return owners


def imbalance(loads: Sequence[float]) -> float:
    """Return the largest load over the mean load; 1 is even."""
    total = sum(loads)
    return max(loads) * len(loads) / total if total else 1.0
