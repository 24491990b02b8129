"""The report as a table, as a file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.limits import read

Report = dict[str, Any]

LEGEND = (
    "Under each rival: its time divided by the time in this row, so that below 1 the rival is faster. "
    "~: the two halves of the run, or two runs, differ by more than 5 %."
)


def write(report: Report, file: Path) -> None:
    """Write a report; what the file holds of other jobs stays."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(kept | rounded(report), indent=1) + "\n")


def rounded(value: Any) -> Any:
    """Return a report with four significant digits: more would be noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def show(report: Report, console: Console) -> None:
    """Print machine, limits, and one table for each operator."""
    for line in header(report):
        console.print(line, style="dim", highlight=False)
    for op, rows in by_operator(report).items():
        table = Table(title=op, title_justify="left")
        for number, name in enumerate(columns(rows)):
            table.add_column(name, justify="left" if number < 3 else "right", overflow="fold")
        for row in rows:
            table.add_row(*cells(row, rows))
        console.print(table)
    console.print(LEGEND, style="dim")
    for row in leads(report):
        for name, reason in row["refused"].items():
            console.print(f"{row['op']} {shape(row)}: no time for {name}: {reason}", highlight=False)
    for wrong in report["wrong"]:
        console.print(f"WRONG: {wrong['case']}: {wrong['reason']}", style="bold red", highlight=False)


def leads(report: Report) -> list[dict[str, Any]]:
    """Return one row for each case, in whose ratios the others appear: the fastest backend, or the first rival."""
    leading: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in report["rows"]:
        key = (row["op"], tuple(row["shape"]), row["dtype"], row["setting"])
        if key not in leading or (row["ours"] and row["median_us"] < leading[key]["median_us"]):
            leading[key] = row
    return list(leading.values())


def by_operator(report: Report) -> dict[str, list[dict[str, Any]]]:
    """Return the leading rows of each operator."""
    rows = leads(report)
    return {op: [row for row in rows if row["op"] == op] for op in dict.fromkeys(row["op"] for row in rows)}


def header(report: Report) -> list[str]:
    """Return the conditions of the measurement in words."""
    machine, limits = report["machine"], read(report["limits"])
    sizes = sorted(limits.copy_gb_s)
    versions = ", ".join(f"{name} {version}" for name, version in machine["peers"].items()) or "none"
    dirty = ", with changes" if machine["dirty"] else ""
    return [
        f"{machine['device']}, {machine['threads']} threads of {machine['cores']} cores, "
        f"load {machine['load']}, torch {machine['torch']}, triton {machine['triton']}, "
        f"commit {str(machine['commit'])[:9]}{dirty}, {machine['date']}",
        f"peers: {versions}; absent: {', '.join(machine['absent']) or 'none'}",
        f"limits: copy {limits.copy_gb_s[sizes[-1]]:.1f} GB/s from memory, up to "
        f"{max(limits.copy_gb_s.values()):.0f} GB/s from caches; products "
        + ", ".join(f"{rate:.0f} GFLOP/s {dtype}" for dtype, rate in limits.gemm_gflop_s.items()),
    ]


def columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the titles of an operator's table."""
    rivals = dict.fromkeys(name for row in rows for name in row["rivals"])
    return ["shape", "dtype", "backend", "time", "p10-p90", "error", "of limit", *rivals]


def cells(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a row of an operator's table: a rival's number is its time divided by the backend's; ~ is noisy."""
    unsure = "~" if row["backend"] in row["noisy"] else ""
    fixed = [
        " ".join(filter(None, (shape(row), row["setting"]))),
        row["dtype"],
        row["backend"],
        unsure + duration(row["median_us"]),
        f"{duration(row['p10_us'])}-{duration(row['p90_us'])}",
        f"{row['error']:.1e}",
        f"{row['limit_fraction']:.0%}",
    ]
    names = dict.fromkeys(name for other in rows for name in other["rivals"])
    return fixed + [_ratio(row, name) for name in names]


def shape(row: dict[str, Any]) -> str:
    """Return sizes as text."""
    return "×".join(map(str, row["shape"]))


def duration(microseconds: float) -> str:
    """Return a time with three digits and its unit."""
    if microseconds < 999.5:
        return f"{microseconds:.3g} µs"
    if microseconds < 999.5e3:
        return f"{microseconds / 1e3:.3g} ms"
    return f"{microseconds / 1e6:.3g} s"


def _ratio(row: dict[str, Any], name: str) -> str:
    if name == row["backend"]:
        return ""
    if name in row["refused"]:
        return "refused"
    if name not in row["rivals"]:
        return ""
    return f"{'~' if name in row['noisy'] else ''}{row['rivals'][name]:.2f}"
