"""Reads what a kernel became: registers, spills, shared memory, and how often each instruction is there."""

import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

_RESOURCES = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_SECTION = re.compile(r"^\s*\.section\s+(\S+?),")
_SASS_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9_.]*)")
_PTX_INSTRUCTION = re.compile(r"^\s+(?:@!?%\w+\s+)?([a-z]\w*(?:\.\w+)+)\s", re.MULTILINE)


@dataclass(frozen=True)
class KernelCode:
    """One kernel's machine code.

    Attributes:
        registers: Registers of a thread (vector registers on AMD).
        spills: Bytes of a thread's stack and local memory; number of spilled registers on AMD.
        shared: Bytes of shared memory of a block.
        instructions: How often each instruction is there, by its full name, such as ``LDG.E.128``.
        intermediate: The same for PTX or LLVM, where a division is one instruction.
    """

    registers: int
    spills: int
    shared: int
    instructions: Counter[str]
    intermediate: Counter[str] = field(default_factory=Counter)

    def count(self, *patterns: str) -> int:
        """Return the number of machine instructions whose name matches a pattern such as ``LDG*.128``."""
        return count(self.instructions, *patterns)


def count(instructions: Counter[str], *patterns: str) -> int:
    """Sum a histogram over the names that match one of the patterns."""
    matching = (n for name, n in instructions.items() if any(fnmatchcase(name, p) for p in patterns))
    return sum(matching)


def read_cubin(path: Path, tools: Path) -> dict[str, KernelCode]:
    """Return the code of every kernel of a cubin.

    Args:
        path: The cubin.
        tools: The folder of ``cuobjdump`` and ``nvdisasm``.
    """
    usage = _run(tools / "cuobjdump", "-res-usage", path)
    histograms = _histograms(_run(tools / "nvdisasm", path))
    return {
        name: KernelCode(int(registers), int(stack) + int(local), int(shared), histograms[name])
        for name, registers, stack, shared, local in _RESOURCES.findall(usage)
    }


def read_ptx(text: str) -> Counter[str]:
    """Return how often each instruction is in a PTX file."""
    return Counter(_PTX_INSTRUCTION.findall(text))


def _histograms(disassembly: str) -> dict[str, Counter[str]]:
    histograms: dict[str, Counter[str]] = {}
    current: Counter[str] = Counter()
    for line in disassembly.splitlines():
        if section := _SECTION.match(line):
            current = histograms.setdefault(section[1].removeprefix(".text."), Counter())
        elif instruction := _SASS_INSTRUCTION.match(line):
            current[instruction[1]] += instruction[1] != "NOP"
    return histograms


def _run(*command: str | Path) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout
