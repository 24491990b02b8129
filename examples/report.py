"""What a training run measured, as a table, a picture and a JSON file."""

import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, median

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from rich.table import Table

BASELINE = "adamw"
JSON_NAME, PNG_NAME = "train_lm.json", "train_lm.png"

# Long enough for every stretch to hold one refresh of a basis, short enough for many stretches in a run.
STRETCH = 10

# Okabe and Ito's palette, ordered so that neighbours differ for every kind of colour vision; the line styles
# repeat with another period, so that a print without colour can be read too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINE_STYLES = ("-", "--", "-.", ":")


@dataclass
class CurvePoint:
    """Validation loss after a number of steps.

    Attributes:
        step: Optimizer steps taken.
        seconds: Time those steps took, without validation.
        val_loss: Mean loss on the validation windows, in nats; None when it is not finite.
    """

    step: int
    seconds: float
    val_loss: float | None


@dataclass
class Run:
    """One optimizer's training run; grows while it trains, so an interrupted run is a shorter one.

    Attributes:
        optimizer: Name on the command line.
        label: Name in the table.
        seed: Seed of the initial weights and of the data order.
        lr: Peak learning rate.
        planned_steps: Length of the schedule.
        model_times: Seconds of each step's forward and backward, hooks included.
        optimizer_times: Seconds of each step's `step` and `zero_grad`.
        state_bytes: Memory of the optimizer's state.
        backends: How often each backend served each op.
        curve: Validation losses, in order of steps.
    """

    optimizer: str
    label: str
    seed: int
    lr: float
    planned_steps: int
    model_times: list[float] = field(default_factory=list)
    optimizer_times: list[float] = field(default_factory=list)
    state_bytes: int = 0
    backends: Counter[tuple[str, str]] = field(default_factory=Counter)
    curve: list[CurvePoint] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Optimizer steps taken."""
        return len(self.optimizer_times)

    @property
    def complete(self) -> bool:
        """Whether the schedule ran to its end."""
        return self.steps == self.planned_steps

    @property
    def seconds(self) -> float:
        """Time the steps took, without validation."""
        return sum(self.model_times) + sum(self.optimizer_times)

    @property
    def final_val_loss(self) -> float | None:
        """Validation loss at the end of the schedule; None before that."""
        return self.curve[-1].val_loss if self.complete else None

    def record(self, val_loss: float) -> None:
        """Append a validation loss to the curve."""
        self.curve.append(CurvePoint(self.steps, self.seconds, val_loss if math.isfinite(val_loss) else None))

    def first_below(self, threshold: float | None) -> CurvePoint | None:
        """Return the first measured point whose validation loss is at most `threshold`."""
        if threshold is None:
            return None
        return next((p for p in self.curve if p.val_loss is not None and p.val_loss <= threshold), None)


def baseline_loss(runs: list[Run]) -> float | None:
    """Return AdamW's final validation loss, or None when AdamW did not finish."""
    return next((run.final_val_loss for run in runs if run.optimizer == BASELINE), None)


def typical_milliseconds(times: list[float]) -> float | None:
    """Return the median over stretches of ten steps of the stretch's mean, in milliseconds a step.

    A moment in which the machine did something else does not count; work done every tenth step does.
    """
    stretches = [times[start : start + STRETCH] for start in range(0, len(times), STRETCH)]
    return 1000 * median(map(mean, stretches)) if stretches else None


def backends_by_op(run: Run) -> dict[str, dict[str, int]]:
    """Return how many calls each backend served, for each op."""
    served: dict[str, dict[str, int]] = {}
    for (op, backend), calls in sorted(run.backends.items()):
        served.setdefault(op, {})[backend] = calls
    return served


def summarize(run: Run, threshold: float | None) -> dict:
    """Return a run as it is written to JSON; `threshold` is AdamW's final validation loss."""
    reached = run.first_below(threshold)
    return {
        "optimizer": run.optimizer,
        "label": run.label,
        "seed": run.seed,
        "lr": run.lr,
        "planned_steps": run.planned_steps,
        "steps": run.steps,
        "complete": run.complete,
        "seconds": run.seconds,
        "final_val_loss": run.final_val_loss,
        "steps_to_adamw": reached.step if reached else None,
        "seconds_to_adamw": reached.seconds if reached else None,
        "model_ms": typical_milliseconds(run.model_times),
        "optimizer_ms": typical_milliseconds(run.optimizer_times),
        "state_bytes": run.state_bytes,
        "backends": backends_by_op(run),
        "curve": [asdict(point) for point in run.curve],
    }


def comparison_table(runs: list[Run]) -> Table:
    """Return the table that compares the runs."""
    table = Table(
        title="Training, judged on held-out text",
        caption="AdamW's is its final loss. Model time includes the statistics that hooks gather in it.",
    )
    table.add_column("optimizer", no_wrap=True)
    for heading in (
        "final\nval loss",
        "steps to\nAdamW's",
        "s to\nAdamW's",
        "model\nms/step",
        "optimizer\nms/step",
        "state\nkB",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    threshold = baseline_loss(runs)
    for row in (summarize(run, threshold) for run in runs):
        table.add_row(
            row["label"],
            show_number(row["final_val_loss"], ".3f") if row["complete"] else "unfinished",
            show_number(row["steps_to_adamw"], "d"),
            show_number(row["seconds_to_adamw"], ".1f"),
            show_number(row["model_ms"], ".1f"),
            show_number(row["optimizer_ms"], ".1f"),
            f"{row['state_bytes'] / 1000:,.0f}",
        )
    return table


def backend_table(runs: list[Run]) -> Table:
    """Return the table of which backend served each op of each run."""
    table = Table(title="What served each op")
    for heading in ("optimizer", "op", "backend", "calls"):
        table.add_column(heading, justify="right" if heading == "calls" else "left")
    for run in runs:
        for (op, backend), calls in sorted(run.backends.items()):
            table.add_row(run.label, op, backend, f"{calls:,}")
        if not run.backends:
            table.add_row(run.label, "none of this package's", "torch", "")
    return table


def loss_figure(runs: list[Run]) -> Figure:
    """Return validation loss against steps and against seconds, side by side."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    by_step, by_second = figure.subplots(1, 2, sharey=True)
    for index, run in enumerate(runs):
        loss = [math.nan if point.val_loss is None else point.val_loss for point in run.curve]
        style = {
            "color": COLOURS[index % len(COLOURS)],
            "linestyle": LINE_STYLES[index % len(LINE_STYLES)],
            "linewidth": 2,
            "label": run.label,
        }
        by_step.plot([point.step for point in run.curve], loss, **style)
        by_second.plot([point.seconds for point in run.curve], loss, **style)

    by_step.set(xlabel="step", ylabel="validation loss (nats per byte)", yscale="log")
    by_second.set(xlabel="seconds of training")
    by_step.yaxis.set_major_locator(FixedLocator([0.5, 0.7, 1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6]))
    by_step.yaxis.set_major_formatter("{x:g}")
    by_step.yaxis.set_minor_locator(NullLocator())
    threshold = baseline_loss(runs)
    for axes in (by_step, by_second):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        if threshold is not None:
            axes.axhline(
                threshold, color="0.4", linewidth=1, linestyle=(0, (1, 2)), label="AdamW's final loss"
            )
    by_second.legend(frameon=False)
    return figure


def require_writable(directory: Path) -> None:
    """Create a directory and check that the report can be written into it.

    Raises:
        ValueError: It cannot; the message says why.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ValueError(f"cannot write to {directory}: {error.strerror}.") from error
    for path in (directory / JSON_NAME, directory / PNG_NAME):
        if path.is_dir():
            raise ValueError(f"cannot write {path}: it is a directory.")


def write_report(runs: list[Run], facts: dict, directory: Path) -> tuple[Path, Path]:
    """Write train_lm.json and train_lm.png, each whole or not at all.

    Args:
        runs: The measured runs.
        facts: What was trained on what: the other keys of the JSON file.
        directory: Where the two files go.

    Returns:
        The paths of the JSON file and of the picture.
    """
    threshold = baseline_loss(runs)
    report = {**facts, "runs": [summarize(run, threshold) for run in runs]}
    json_path, png_path = directory / JSON_NAME, directory / PNG_NAME
    write_json(report, json_path)
    write_atomically(png_path, lambda temporary: loss_figure(runs).savefig(temporary, format="png", dpi=144))
    return json_path, png_path


def write_json(report: dict, path: Path) -> None:
    """Write strict JSON; a reader sees the old file or the new one, never a part."""
    text = json.dumps(report, indent=1, allow_nan=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text))


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a scratch file beside `path`, then rename it to `path`."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as scratch:
        temporary = Path(scratch) / path.name
        write(temporary)
        os.replace(temporary, path)


def show_number(value: float | None, spec: str) -> str:
    """Format a number, or the dash that stands for one that was not measured."""
    return "–" if value is None else format(value, spec)
