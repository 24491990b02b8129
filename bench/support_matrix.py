"""The support matrix of README.md, made from the backends' tables and the results of ``--check``."""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.check import RESULTS
from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS

README = Path(__file__).parents[1] / "README.md"
BEGIN = "<!-- support matrix: python -m bench --support-matrix -->"
END = "<!-- end of the support matrix -->"

TARGETS = ("x86_64", "sm_80", "sm_90", "sm_100", "gfx942", "Apple")

# What the tests show for every operator that a backend has; composite has no code of its own to compile.
EVIDENCE: dict[str, dict[str, str]] = {
    "composite": dict.fromkeys(TARGETS, "plain PyTorch"),
    "cpu": {"x86_64": "compiled"},
    "triton": dict.fromkeys(("sm_80", "sm_90", "sm_100", "gfx942"), "emulated + compiled"),
}
NOT_THERE = "not there"


def matrix() -> str:
    """Return the matrix as a Markdown table, one row for each operator of each backend."""
    ran = _hardware_runs()
    header = ("operator", "backend", *TARGETS)
    lines = [header, ("---",) * len(header)]
    for backend, op in _registered():
        cells = (ran.get((op, backend, t)) or EVIDENCE[backend].get(t, NOT_THERE) for t in TARGETS)
        lines.append((f"`{op}`", backend, *cells))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def updated(readme: str) -> str:
    """Return the text of a README with a current matrix between its markers.

    Raises:
        ValueError: The markers are not there.
    """
    begin, end = readme.find(BEGIN), readme.find(END)
    if not 0 <= begin < end:
        raise ValueError(f"README.md has no lines {BEGIN!r} and {END!r}, the matrix goes between them")
    return f"{readme[: begin + len(BEGIN)]}\n{matrix()}\n{readme[end:]}"


def main() -> int:
    """Write the matrix into README.md."""
    README.write_text(updated(README.read_text()))
    return 0


def _registered() -> Iterator[tuple[str, str]]:
    """Yield every operator that a backend implements, whether the backend can run here or not."""
    for op in OPERATORS:
        for backend in backends.NAMES:
            if op in import_module(f"{backends.__name__}.{backend}").implementations():
                yield backend, op


def _hardware_runs(folder: Path = RESULTS) -> dict[tuple[str, str, str], str]:
    """Return what ran where: only operators that passed in every dtype count."""
    reports: list[dict[str, Any]] = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    ran = {}
    for report in sorted(reports, key=lambda report: report["date"]):
        failed = {(r["op"], r["backend"]) for r in report["results"] if not r["passed"]}
        for result in report["results"]:
            key = (result["op"], result["backend"])
            if key not in failed:
                ran[(*key, report["target"])] = f"ran on hardware ({report['device']}, {report['date']})"
    return ran
