"""Rules that a kernel's source must keep, found by reading its syntax tree.

They guard what Triton's interpreter does not show (see ``interpreter.py``), and what compiles to something
else than it reads as.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MEMORY = "memory.py"
"""The one file whose kernels may load, store and convert to bfloat16."""

_DOORS = {"load": "load_as_float32 or load_operand", "store": "store_rounded"}
_LAUNCHED = re.compile(r"^@triton\.jit.*\ndef \w+_kernel\(", re.MULTILINE)
_REMOVED = {"make_block_ptr": "a pointer, or a tensor descriptor"}


@dataclass(frozen=True)
class Violation:
    """A place in a kernel that breaks a rule."""

    line: int
    rule: str


def violations(source: str, file_name: str) -> list[Violation]:
    """Return the broken rules of every ``triton.jit`` function of a file."""
    tree = ast.parse(source)
    kernels = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _is_jit(node)]
    found = [v for kernel in kernels for node in ast.walk(kernel) for v in _check(node, file_name)]
    found += [v for node in ast.walk(tree) for v in _check_import(node)]
    return sorted(found, key=lambda violation: violation.line)


def kernel_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold kernels or parts of kernels."""
    return [file for file in sorted(folder.rglob("*.py")) if "@triton.jit" in file.read_text()]


def launched_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold kernels which are launched: functions called ``<name>_kernel``."""
    return [file for file in kernel_files(folder) if _LAUNCHED.search(file.read_text())]


def _is_jit(function: ast.FunctionDef) -> bool:
    return any("triton.jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _check(node: ast.AST, file_name: str) -> Iterator[Violation]:
    if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
        yield Violation(node.lineno, "`/` compiles to an approximate division: say tl.div_rn")
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tl":
        if node.attr in _DOORS and file_name != MEMORY:
            yield Violation(node.lineno, f"tl.{node.attr} goes past the doors: use {_DOORS[node.attr]}")
        if node.attr in _REMOVED:
            yield Violation(node.lineno, f"tl.{node.attr} is gone from Triton: use {_REMOVED[node.attr]}")
    if isinstance(node, ast.Call) and file_name != MEMORY and _converts_to_bfloat16(node):
        yield Violation(node.lineno, "a conversion to bfloat16 outside of memory.py: use rounded")


def _converts_to_bfloat16(call: ast.Call) -> bool:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return isinstance(call.func, ast.Attribute) and any(ast.unparse(a) == "tl.bfloat16" for a in arguments)


def _check_import(node: ast.AST) -> Iterator[Violation]:
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("triton.language"):
        yield Violation(node.lineno, "names imported from triton.language hide what they are: say tl.name")
