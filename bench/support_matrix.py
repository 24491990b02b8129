"""The support matrix of README.md, made from the backends' tables and the results of ``--check``."""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import machine, markdown
from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS

BEGIN = "<!-- support matrix: python -m bench --support-matrix -->"
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


def matrix() -> str:
    """Return the matrix as a Markdown table, one row for each operator of each backend."""
    ran = _hardware_runs(machine.RESULTS)
    header = ("operator", "backend", *TARGETS)
    lines: list[tuple[str, ...]] = [header]
    for backend, op in _registered():
        cells = (ran.get((op, backend, t)) or EVIDENCE[backend].get(t, NOT_THERE) for t in TARGETS)
        lines.append((f"`{op}`", backend, *cells))
    return markdown.table(lines)


def updated(readme: str) -> str:
    """Return the text of a README with a current matrix between its markers."""
    return markdown.between(readme, BEGIN, END, matrix())


def main() -> int:
    """Write the matrix into README.md."""
    markdown.README.write_text(updated(markdown.README.read_text()))
    return 0


def _registered() -> Iterator[tuple[str, str]]:
    """Yield every operator that a backend implements, whether the backend can run here or not."""
    for op in OPERATORS:
        for backend in backends.NAMES:
            if op in import_module(f"{backends.__name__}.{backend}").implementations():
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
