"""What serves what on which hardware, made from the backends' tables and the results of ``--check``."""

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import machine, markdown
from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS

PAGE = markdown.DOCS / "support.md"
COMMAND = "python -m bench --support-matrix"
BEGIN = f"<!-- support matrix: {COMMAND} -->"
END = "<!-- end of the support matrix -->"

TARGETS = ("x86_64", "sm_80", "sm_90", "sm_100", "gfx942", "Apple")

# What the tests show for every operator that a backend has; composite has no code of its own to compile.
EVIDENCE: dict[str, dict[str, str]] = {
    "composite": dict.fromkeys(TARGETS, "plain PyTorch"),
    "cpu": {"x86_64": "compiled"},
    "triton": dict.fromkeys(("sm_80", "sm_90", "sm_100", "gfx942"), "emulated + compiled"),
    "cuda": dict.fromkeys(("sm_80", "sm_90", "sm_100"), "emulated + compiled"),
    "metal": {"Apple": "emulated"},
}
NOT_THERE = "not there"

HARDWARE: dict[str, tuple[str, ...]] = {
    "x86_64": ("x86_64",),
    "NVIDIA": ("sm_80", "sm_90", "sm_100"),
    "AMD": ("gfx942",),
    "Apple": ("Apple",),
}
"""Columns of the overview, and the targets that each stands for."""


def matrix() -> str:
    """Return the matrix as a Markdown table, one row for each operator of each backend."""
    ran = _hardware_runs(machine.RESULTS)
    header = ("operator", "backend", *TARGETS)
    lines: list[tuple[str, ...]] = [header]
    for backend, op in _registered():
        cells = (ran.get((op, backend, t)) or EVIDENCE[backend].get(t, NOT_THERE) for t in TARGETS)
        lines.append((f"`{op}`", backend, *cells))
    return markdown.table(lines)


def overview() -> str:
    """Return a Markdown table of one row for each operator: the backends that have it, for each hardware.

    An operator on lists that no backend has of its own applies the one on single tensors, and is left out; it
    stands beside that one where the same backends have both. A backend that ran there is in bold.
    """
    ran = _hardware_runs(machine.RESULTS)
    served: dict[str, tuple[str, ...]] = {}
    for op in OPERATORS:
        cells = tuple(_backends_on(op, targets, ran) for targets in HARDWARE.values())
        single = op.replace("_foreach", "")
        if single != op and served.get(single) == cells:
            served[f"{single}`, `{op}"] = served.pop(single)
        elif single == op or set(cells) != {"composite"}:
            served[op] = cells
    lines = [("operator", *HARDWARE), *((f"`{name}`", *cells) for name, cells in served.items())]
    return markdown.table(lines)


def page() -> str:
    """Return the page with the whole matrix."""
    return f"""# Support

What each operator of each backend stands on, for each kind of hardware: *ran on hardware* (which, when),
*emulated + compiled* (executed by an emulator on a CPU, and its machine code read), *compiled*, or *not there*.
Operators without a backend of their own on a device are served by *composite*, which is plain PyTorch.

{matrix()}

Made by `{COMMAND}` from the results in `bench/results/`, where
`python -m bench --check` puts the file of the machine that it runs on.
"""


def updated(readme: str) -> str:
    """Return the text of a README with a current overview between its markers."""
    return markdown.between(readme, BEGIN, END, overview())


def main() -> int:
    """Write the overview into README.md and the matrix into its page."""
    markdown.README.write_text(updated(markdown.README.read_text()))
    PAGE.write_text(page())
    return 0


def _backends_on(op: str, targets: tuple[str, ...], ran: Mapping[tuple[str, str, str], str]) -> str:
    """Return the backends with code of their own for an operator on some hardware, those that ran in bold."""
    names = []
    for backend, registered in _registered():
        if registered == op and backend != "composite" and EVIDENCE[backend].keys() & set(targets):
            seen = any((op, backend, target) in ran for target in targets)
            names.append(f"**{backend}**" if seen else backend)
    return ", ".join(names) or "composite"


def _registered() -> Iterator[tuple[str, str]]:
    """Yield every operator that a backend implements, whether the backend can run here or not."""
    for op in OPERATORS:
        for backend in backends.NAMES:
            if op in backends.complete(import_module(f"{backends.__name__}.{backend}").implementations()):
                yield backend, op


def _hardware_runs(folder: Path) -> dict[tuple[str, str, str], str]:
    """Return what ran where: only operators that passed in every dtype count."""
    reports: list[dict[str, Any]] = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    checked = [report for report in reports if "results" in report]
    ran = {}
    for report in sorted(checked, key=lambda report: report["date"]):
        failed = {(r["op"], r["backend"]) for r in report["results"] if not r["passed"]}
        for result in report["results"]:
            key = (result["op"], result["backend"])
            if key not in failed:
                ran[(*key, report["target"])] = f"ran on hardware ({report['device']}, {report['date']})"
    return ran
