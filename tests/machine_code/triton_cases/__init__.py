"""How each Triton kernel is launched and what its machine code must be, one file for each kernel file."""

from importlib import import_module
from pathlib import Path

from tests.machine_code.triton_toolchain import Case

FILES = sorted(file.stem for file in Path(__file__).parent.glob("[a-z]*.py"))


def all_cases() -> list[Case]:
    """Return the cases of every file."""
    return [case for file in FILES for case in import_module(f"{__name__}.{file}").CASES]
