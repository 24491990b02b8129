"""The table of all kernels on all targets: ``python -m tests.machine_code.report`` writes ``report.md``."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.machine_code.sass import KernelCode

FILE = Path(__file__).parent / "report.md"

# Columns that count instructions, by the names that those have on one target or another.
_COUNTED = {
    "16-byte loads": ("LDG.128", "global_load_dwordx4", "buffer_load_dwordx4"),
    "16-byte stores": ("STG.128", "global_store_dwordx4", "buffer_store_dwordx4"),
    "tensor core": ("HMMA", "HGMMA", "UTCHMMA"),
    "asynchronous copies": ("LDGSTS", "UTMALDG"),
}


@dataclass(frozen=True)
class Row:
    """One kernel on one target."""

    kernel: str
    variant: str
    target: str
    code: KernelCode

    def cells(self) -> tuple[str, ...]:
        """Return the row as text, one string a column."""
        code = self.code
        instructions = code.sass.total() - code.count("NOP")
        numbers = [
            code.registers,
            code.stack_bytes + (code.spill_bytes or 0),
            code.shared_bytes,
            instructions,
        ]
        numbers += [sum(map(code.count, names)) for names in _COUNTED.values()]
        return (self.kernel, self.variant, self.target, *map(str, numbers))


HEADER = ("kernel", "variant", "target", "registers", "spills", "shared", "instructions", *_COUNTED)


def table(rows: Iterable[Row]) -> str:
    """Return the rows as an aligned Markdown table."""
    lines = [HEADER, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    text.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in text)


def measure() -> list[Row]:
    """Compile every case of every kernel for every target."""
    return [*_triton_rows(), *_cuda_rows()]


def _triton_rows() -> Iterator[Row]:
    from tests.machine_code.triton_cases import all_cases
    from tests.machine_code.triton_toolchain import compile_case

    for case in all_cases():
        for target in case.expect:
            yield Row(case.kernel, case.variant, target, compile_case(case, target))


def _cuda_rows() -> Iterator[Row]:
    from tests.machine_code.cuda_toolchain import CSRC, compiled

    for source in sorted(CSRC.glob("*.cu")):
        for _, code in sorted(compiled(source.name).items()):
            yield cuda_row(code)


def cuda_row(code: KernelCode) -> Row:
    """Return the row of a CUDA kernel, whose name holds its template arguments."""
    kernel, _, variant = code.name.removeprefix("kpop::").partition("<")
    return Row(f"{kernel} (CUDA)", variant.removesuffix(">"), code.target, code)


def toolchain() -> str:
    """Return the compilers that the numbers depend on."""
    import triton

    nvcc = subprocess.run(["nvcc", "--version"], check=True, capture_output=True, text=True).stdout
    return f"Triton {triton.__version__} and nvcc {re.search(r'release ([0-9.]+)', nvcc).group(1)}"


def render(rows: Iterable[Row]) -> str:
    """Return the whole report."""
    return f"""# Machine code of the kernels

Written by `python -m tests.machine_code.report` with {toolchain()}. Compiled only: nothing here was run.
Registers are those of a thread, shared memory is bytes of a block, instructions are static.

{table(rows)}
"""


if __name__ == "__main__":
    FILE.write_text(render(measure()))
