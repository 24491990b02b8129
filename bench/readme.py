"""The tables of speed, made from the committed results: an overview in README.md, all rows in a page of docs/."""

import json
from collections.abc import Iterator
from typing import Any

from bench import machine, markdown, output
from bench.output import Report

PAGE = markdown.DOCS / "speed.md"
COMMAND = "python -m bench --readme"
BEGIN = f"<!-- speed: {COMMAND} -->"
END = "<!-- end of speed -->"


def reports() -> list[Report]:
    """Return the committed reports that have times, by device."""
    files = sorted(machine.RESULTS.glob("*.json"))
    return [report for report in (json.loads(file.read_text()) for file in files) if "rows" in report]


def tables() -> str:
    """Return the tables of all devices as Markdown, each with the command that makes it."""
    return "\n\n".join("\n\n".join(_device(report)) for report in reports())


def page() -> str:
    """Return the page with all rows."""
    return (
        f"# Speed\n\n{tables()}\n\nThis page is made by `{COMMAND}` from the results in `bench/results/`.\n"
    )


def overview() -> str:
    """Return, for each device, its largest case of each operator as a Markdown table."""
    return "\n\n".join(_overview(report) for report in reports())


def updated(readme: str) -> str:
    """Return the text of a README with a current overview between its markers."""
    return markdown.between(readme, BEGIN, END, overview())


def main() -> int:
    """Write the overview into README.md and the tables into their page."""
    markdown.README.write_text(updated(markdown.README.read_text()))
    PAGE.write_text(page())
    return 0


def _overview(report: Report) -> str:
    lines: list[tuple[str, ...]] = [
        ("operator", "largest case", "backend", "time", "of limit", "rival's time / ours")
    ]
    for op, rows in output.by_operator(report).items():
        if op != "step" and any(row["ours"] for row in rows):
            lines.append(_headline(op, max(rows, key=lambda row: (row["dtype"] == "float32", _size(row)))))
    blocks = [f"{output.header(report)[0]}:", markdown.table(lines), *_steps(report), f"`{_source(report)}`"]
    return "\n\n".join(blocks)


def _steps(report: Report) -> Iterator[str]:
    """Yield a table of optimizers, the fastest first, for each set of parameters."""
    for row in output.leads(report):
        if row["op"] == "step":
            times = {f"**{row['backend']}**": row["median_us"]}
            ours = {other["backend"] for other in report["rows"] if other["op"] == "step" and other["ours"]}
            for name, ratio in row["rivals"].items():
                times[f"**{name}**" if name in ours else name] = ratio * row["median_us"]
            ranked = sorted(times, key=times.__getitem__)
            yield f"A step of the {row['setting']}, {output.shape(row)} parameters, refreshes in their share:"
            yield markdown.table(
                [("optimizer", "time"), *((name, output.duration(times[name])) for name in ranked)]
            )


def _headline(op: str, row: dict[str, Any]) -> tuple[str, ...]:
    shape, dtype, backend, time, _, _, of_limit, *ratios = output.cells(row, [row])
    rivals = zip(output.columns([row])[-len(ratios) :], ratios, strict=True)
    others = ", ".join(f"{name} {ratio}" for name, ratio in rivals if ratio and name != "composite")
    return (f"`{op}`", f"{shape} {dtype}", backend, time, of_limit, others)


def _size(row: dict[str, Any]) -> int:
    return row["bytes"] + row["flops"]


def _device(report: Report) -> Iterator[str]:
    yield f"### {report['machine']['device']}"
    yield "\n".join(f"{line}  " for line in output.header(report))
    yield output.LEGEND
    for op, rows in output.by_operator(report).items():
        yield f"`{op}`"
        yield markdown.table([output.columns(rows), *(output.cells(row, rows) for row in rows)])
    if "scaling" in report:
        yield from _scaling(report["scaling"])
    yield f"`{_source(report)}`"


def _source(report: Report) -> str:
    return f"{report['machine']['command']} --json {machine.RESULTS.relative_to(machine.ROOT)}/FILE"


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
