"""What a kernel's machine code is expected to be, declared beside the kernel's cases."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.machine_code.sass import KernelCode, count


@dataclass(frozen=True)
class Between:
    """A range of counts, both ends included."""

    low: int
    high: float = float("inf")

    def __str__(self) -> str:
        if self.low == self.high:
            return str(self.low)
        return f"at least {self.low}" if self.high == float("inf") else f"{self.low} to {self.high}"


def exactly(n: int) -> Between:
    """Return the range of one number."""
    return Between(n, n)


@dataclass(frozen=True)
class Expect:
    """Bounds on one kernel's code.

    Attributes:
        registers: Most registers of a thread.
        shared: Most bytes of shared memory of a block.
        instructions: Counts of machine instructions by pattern; a pattern may list several, ``"LDL*|STL*"``.
        intermediate: Counts of PTX or LLVM instructions by pattern.
        spills: Most bytes spilled to local memory.
    """

    registers: int
    shared: int
    instructions: Mapping[str, Between] = field(default_factory=dict)
    intermediate: Mapping[str, Between] = field(default_factory=dict)
    spills: int = 0

    def violations(self, code: KernelCode) -> list[str]:
        """Return a sentence for each bound that the code breaks."""
        measured = {"registers": code.registers, "shared": code.shared, "spills": code.spills}
        broken = [
            f"{name} is {value}, it must be at most {getattr(self, name)}"
            for name, value in measured.items()
            if value > getattr(self, name)
        ]
        for kind in ("instructions", "intermediate"):
            broken += _broken_counts(getattr(code, kind), getattr(self, kind))
        return broken


def _broken_counts(found: Counter[str], bounds: Mapping[str, Between]) -> list[str]:
    counted = {pattern: count(found, *pattern.split("|")) for pattern in bounds}
    return [
        f"{pattern} is there {n} times, it must be {bounds[pattern]}"
        for pattern, n in counted.items()
        if not bounds[pattern].low <= n <= bounds[pattern].high
    ]
