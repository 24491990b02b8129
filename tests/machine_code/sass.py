"""Reading machine code: what a cubin holds, kernel by kernel, whoever compiled it."""

import importlib.util
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.emulation.tools import ToolMissing

# On sm_90 and later a kernel that uses shared memory is charged this much for the system on top.
RESERVED_SHARED_BYTES = 1024

_RESOURCES = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")
_SECTION = re.compile(r"^\s+\.section\s+(\S+?),", re.MULTILINE)
_TARGET = re.compile(r"\.target\s+sm_(\w+)|EF_CUDA_SM(\d+)")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)
_ENTRY = re.compile(r"\.entry (\w+)\s*\(")
_PTX_INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z]\w*(?:[.:]+\w+)*)(?=[\s;])", re.MULTILINE)


@dataclass(frozen=True)
class KernelCode:
    """One kernel as compiled for one target.

    Attributes:
        name: The symbol, or whatever name the toolchain gives it.
        target: Such as ``"sm_90"``.
        registers: Registers of a thread.
        stack_bytes: Local memory of a thread, spills included.
        shared_bytes: Shared memory of a block without what the system reserves; static, unless the toolchain that
            knows the dynamic part adds it.
        sass: How often each instruction occurs, by its whole name, such as ``"LDG.E.128.CONSTANT"``.
        ptx: The same for the PTX it was made from, such as ``"fma.rn.f32"``; None where it is not known.
        spill_bytes: Stores and loads of spilled registers as ptxas reports them; None where it was not asked.
        up_to_exit: Instructions up to the last EXIT. What follows is subroutines, such as the slow path of a
            division. Roughly what a thread executes of a kernel without branches; None where it is not known.
    """

    name: str
    target: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    sass: Counter[str] = field(repr=False)
    ptx: Counter[str] | None = field(default=None, repr=False)
    spill_bytes: int | None = None
    up_to_exit: int | None = None

    def count(self, instruction: str) -> int:
        """Count SASS instructions by name and modifiers: ``"LDG.128"`` counts ``LDG.E.128.CONSTANT`` too."""
        return count(self.sass, instruction)


def count(histogram: Counter[str], instruction: str) -> int:
    """Sum the entries with the instruction's name and, in any place, its modifiers."""
    name, *modifiers = instruction.split(".")
    total = 0
    for entry, occurrences in histogram.items():
        entry_name, *entry_modifiers = entry.split(".")
        if entry_name == name and set(modifiers) <= set(entry_modifiers):
            total += occurrences
    return total


def read_cubin(path: Path) -> dict[str, KernelCode]:
    """Read all kernels of a cubin, by their symbols.

    Raises:
        ToolMissing: There is neither cuobjdump nor nvdisasm.
    """
    resources = _output(find_reader("cuobjdump"), "-res-usage", str(path))
    disassembly = _output(find_reader("nvdisasm"), str(path))
    # The first is how nvdisasm names the target from sm_90 on, the second how it does before.
    target = "sm_" + next(filter(None, _TARGET.search(disassembly).groups()))
    instructions = _instructions_by_kernel(disassembly)
    return {
        name: KernelCode(
            name=name,
            target=target,
            registers=int(registers),
            stack_bytes=int(stack),
            shared_bytes=_without_reserve(int(shared), target),
            sass=Counter(instructions[name]),
            up_to_exit=_last_exit(instructions[name]),
        )
        for name, registers, stack, shared in _RESOURCES.findall(resources)
        if name in instructions
    }


def read_ptx(text: str) -> dict[str, Counter[str]]:
    """Count the instructions of every kernel of a PTX module, by symbol; device functions are not included."""
    parts = _ENTRY.split(text)
    names, bodies = parts[1::2], parts[2::2]
    return {
        name: Counter(_PTX_INSTRUCTION.findall(_body(body))) for name, body in zip(names, bodies, strict=True)
    }


def readers_available() -> bool:
    """Whether ``read_cubin`` has its tools."""
    return all(_reader_path(name) is not None for name in ("cuobjdump", "nvdisasm"))


def find_reader(name: str) -> Path:
    """Return the path of cuobjdump or nvdisasm, which Triton brings along, or raise ``ToolMissing``."""
    path = _reader_path(name)
    if path is None:
        raise ToolMissing(f"{name} comes with triton or the CUDA toolkit, and neither is installed")
    return path


def _reader_path(name: str) -> Path | None:
    spec = importlib.util.find_spec("triton")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / name
        if bundled.exists():
            return bundled
    on_path = shutil.which(name)
    return Path(on_path) if on_path else None


def _output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _instructions_by_kernel(disassembly: str) -> dict[str, list[str]]:
    """Return instructions section by section; a kernel's section holds the subroutines it calls as well."""
    parts = _SECTION.split(disassembly)
    sections = zip(parts[1::2], parts[2::2], strict=True)
    return {
        section.removeprefix(".text."): _INSTRUCTION.findall(text)
        for section, text in sections
        if section.startswith(".text.")
    }


def _last_exit(instructions: list[str]) -> int:
    return max(i for i, name in enumerate(instructions, 1) if name == "EXIT")


def _without_reserve(shared_bytes: int, target: str) -> int:
    reserved = int(re.sub(r"\D", "", target)) >= 90 and shared_bytes >= RESERVED_SHARED_BYTES
    return shared_bytes - RESERVED_SHARED_BYTES if reserved else shared_bytes


def _body(text: str) -> str:
    """Return what stands between the kernel's outermost braces."""
    start = text.index("{")
    depth = 0
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + 1 : position]
    raise ValueError("the PTX of a kernel ends within its braces")
