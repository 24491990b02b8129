"""The tables of speed in README.md, made from the committed results."""

import json
from collections.abc import Iterator
from typing import Any

from bench import machine, markdown, output
from bench.output import Report

BEGIN = "<!-- speed: python -m bench --readme -->"
END = "<!-- end of speed -->"


def reports() -> list[Report]:
    """Return the committed reports that have times, by device."""
    files = sorted(machine.RESULTS.glob("*.json"))
    return [report for report in (json.loads(file.read_text()) for file in files) if "rows" in report]


def tables() -> str:
    """Return the tables of all devices as Markdown, each with the command that makes it."""
    return "\n\n".join("\n\n".join(_device(report)) for report in reports())


def updated(readme: str) -> str:
    """Return the text of a README with current tables between its markers."""
    return markdown.between(readme, BEGIN, END, tables())


def main() -> int:
    """Write the tables into README.md."""
    markdown.README.write_text(updated(markdown.README.read_text()))
    return 0


def _device(report: Report) -> Iterator[str]:
    yield f"### {report['machine']['device']}"
    yield "\n".join(f"{line}  " for line in output.header(report))
    yield output.LEGEND
    for op, rows in output.by_operator(report).items():
        yield f"`{op}`"
        yield markdown.table([output.columns(rows), *(output.cells(row, rows) for row in rows)])
    if "scaling" in report:
        yield from _scaling(report["scaling"])
    yield f"`{report['machine']['command']} --json {machine.RESULTS.relative_to(machine.ROOT)}/FILE`"


def _scaling(scaling: dict[str, Any]) -> Iterator[str]:
    yield "Time grows as size to the power of"
    lines = [("what", "backend", "against", "sizes", "power")]
    for line in scaling["slopes"]:
        power = f"{'~' if line['noisy'] else ''}{line['slope']:.2f}"
        lines.append((line["op"], line["backend"], line["against"], _list(line["sizes"]), power))
    yield markdown.table(lines)
    yield "Memory that a launch needs besides its inputs and outputs"
    yield markdown.table(
        [("op", "backend", "shape", "inputs", "besides")]
        + [
            (row["op"], row["backend"], output.shape(row), _mib(row["input_bytes"]), _mib(row["extra_bytes"]))
            for row in scaling["memory"]
        ]
    )
    calls = {
        **scaling["call_us"],
        "import kpop_kernels, torch being there": scaling["import_us"]["after torch"],
    }
    yield "Overhead"
    yield markdown.table(
        [("call on 1×1", "time"), *((name, output.duration(us)) for name, us in calls.items())]
    )


def _list(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes))


def _mib(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"
