"""The report as pictures: the roofline with every backend and rival on it, and time against size."""

from collections import Counter
from collections.abc import Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.limits import Limits, read
from bench.output import Report, leads
from kpop_kernels import backends

# Okabe and Ito's palette, ordered so that neighbours differ for every kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

# Where there are more operators than colours, the next ones have other shapes.
DTYPE_MARKERS = (
    {"float32": "o", "bfloat16": "s", "float16": "^"},
    {"float32": "D", "bfloat16": "P", "float16": "v"},
    {"float32": "*", "bfloat16": "X", "float16": "h"},
)
DTYPE_LINES = {"float32": "-", "bfloat16": "--", "float16": ":"}


def write(report: Report, stem: Path) -> list[Path]:
    """Write each picture as PNG and SVG beside a file name, and return the files."""
    figures = {"roofline": roofline(report), "times": times(report)}
    files = []
    for name, figure in figures.items():
        for suffix in ("png", "svg"):
            file = stem.with_name(f"{stem.name}-{name}.{suffix}")
            figure.savefig(file, dpi=150, metadata={"Date": None} if suffix == "svg" else {})
            files.append(file)
    return files


def roofline(report: Report) -> Figure:
    """Draw operations a second against operations a byte: filled for this package, hollow for rivals."""
    limits = read(report["limits"])
    rows = [row for row in leads(report) if row["flops"]]
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    ops = dict.fromkeys(row["op"] for row in rows)
    looks = dict(zip(ops, cycle(product(DTYPE_MARKERS, COLOURS)), strict=False))
    for row in rows:
        intensity = row["flops"] / row["bytes"]
        for ours, microseconds in _points(row):
            markers, colour = looks[row["op"]]
            style = {"facecolor": colour if ours else "none", "edgecolor": colour, "s": 40 if ours else 25}
            axes.scatter(intensity, row["flops"] / microseconds / 1000, marker=markers[row["dtype"]], **style)
    _draw_roof(axes, limits, [row["flops"] / row["bytes"] for row in rows], [row["dtype"] for row in rows])
    for op, (markers, colour) in looks.items():
        axes.scatter([], [], color=colour, marker=markers["float32"], label=op)
    axes.scatter([], [], facecolor="none", edgecolor="black", label="rivals")
    axes.set(xscale="log", yscale="log", xlabel="operations / byte of least traffic", ylabel="GFLOP/s")
    axes.set_title(f"Roofline of {_machine(report)}")
    axes.grid(True, which="major", alpha=0.3)
    figure.legend(fontsize="small", loc="outside right upper")
    return figure


def times(report: Report) -> Figure:
    """Draw, for each operator in float32, the time of each backend and rival against the bytes it must move."""
    rows = [row for row in leads(report) if row["dtype"] == "float32" and row["op"] != "step"]
    counts = Counter(map(_panel, rows))
    ops = [panel for panel, count in counts.items() if count > 1]
    columns = min(3, len(ops)) or 1
    figure = Figure(figsize=(5 * columns, 3.8 * -(-len(ops) // columns)), layout="constrained")
    panels = figure.subplots(-(-len(ops) // columns) or 1, columns, squeeze=False).flat
    for axes, op in zip(panels, ops, strict=False):
        _draw_times(axes, [row for row in rows if _panel(row) == op])
        axes.set_title(op)
    for axes in list(figure.axes)[len(ops) :]:
        axes.remove()
    figure.suptitle(f"float32 on {_machine(report)}")
    return figure


def _points(row: dict[str, Any]) -> Iterator[tuple[bool, float]]:
    """Yield the times of a case, and whether each is one of this package."""
    for name, factor in {row["backend"]: 1.0, **row["rivals"]}.items():
        yield name in backends.NAMES, row["median_us"] * factor


def _draw_roof(axes: Axes, limits: Limits, intensities: list[float], dtypes: list[str]) -> None:
    sizes = sorted(limits.copy_gb_s)
    memory, cache = limits.copy_gb_s[sizes[-1]], max(limits.copy_gb_s.values())
    low, high = min(intensities, default=0.1) / 2, max(intensities, default=1000.0) * 2
    for dtype in dict.fromkeys(dtypes):
        rate = limits.gemm_gflop_s[dtype]
        bends = [low, min(max(rate / memory, low), high), high]
        line = DTYPE_LINES[dtype]
        axes.plot(bends, [min(x * memory, rate) for x in bends], line, color="grey", label=f"limit {dtype}")
    bends = [low, min(max(limits.gemm_gflop_s["float32"] / cache, low), high)]
    axes.plot(bends, [x * cache for x in bends], "-.", color="lightgrey", label="limit in cache")


def _draw_times(axes: Axes, rows: list[dict[str, Any]]) -> None:
    curves: dict[str, dict[int, float]] = {}
    for row in rows:
        for name, factor in {row["backend"]: 1.0, **row["rivals"]}.items():
            curves.setdefault(name, {}).setdefault(row["bytes"], row["median_us"] * factor)
    looks = cycle(zip(COLOURS, MARKERS, strict=True))
    for (name, curve), (colour, marker) in zip(curves.items(), looks, strict=False):
        axes.plot(
            *zip(*sorted(curve.items()), strict=True), color=colour, marker=marker, markersize=4, label=name
        )
    axes.set(xscale="log", yscale="log", xlabel="bytes of least traffic", ylabel="µs")
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize="x-small")


def _panel(row: dict[str, Any]) -> str:
    return " ".join(filter(None, (row["op"], row["setting"])))


def _machine(report: Report) -> str:
    machine = report["machine"]
    return f"{machine['device']}, {machine['threads']} threads, {machine['date']}"
