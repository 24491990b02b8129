"""What changed since a commit: both versions of the package run side by side and take turns.

The old version is checked out in a worktree and measured by the benchmark of the working tree, in a process of its
own that launches when it is told to. So the two are compared as two variants of one case are: launch by launch.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from bench import machine, ops, output
from bench.case import dtype_name
from bench.run import Measurement
from bench.timing import QUICK, Effort, Launch, clock, noisy, ratio, summary, warm_up

SOURCES = ("csrc", "setup.py")


def compare(
    base: str, names: Sequence[str], device: str, threads: int, effort: Effort
) -> list[dict[str, Any]]:
    """Return one row for each backend and case that both versions have.

    Args:
        base: Commit, branch or tag.
        names: Of `ops.NAMES`.
        device: Where to run.
        threads: CPU threads of each version.
        effort: How long to measure.
    """
    with ExitStack() as stack:
        old_tree = stack.enter_context(checkout(base))
        arguments = (device, str(threads), *names)
        old, new = (stack.enter_context(Worker.start(tree, arguments)) for tree in (old_tree, machine.ROOT))
        common = [key for key in new.available if key in old.available]
        halves: dict[tuple[str, str], tuple[list[list[float]], list[list[float]]]]
        halves = {key: ([], []) for key in common}
        for seed in range(2):
            for key in common:
                for side, samples in zip(halves[key], _take_turns(old, new, key, seed, effort), strict=True):
                    side.append(samples)
    return [_row(new.available[key], *halves[key]) for key in common]


def show(rows: Sequence[dict[str, Any]], base: str, console: Console) -> None:
    """Print the comparison: above 1, the working tree is faster."""
    table = Table(title=f"{base} ÷ working tree", title_justify="left")
    for title in ("op", "shape", "dtype", "backend", base, "now", "ratio"):
        table.add_column(title, justify="right" if title in (base, "now", "ratio") else "left")
    for row in rows:
        times = output.duration(row["base_us"]), output.duration(row["median_us"])
        sizes = " ".join(filter(None, (output.shape(row), row["setting"])))
        factor = f"{'~' if row['noisy'] else ''}{row['ratio']:.2f}"
        table.add_row(row["op"], sizes, row["dtype"], row["backend"], *times, factor)
    console.print(table)


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Check a commit out and build it, and give it the benchmark and the oracle of the working tree.

    Raises:
        ValueError: There is no such commit.
    """
    if _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").returncode:
        raise ValueError(f"bench: {commit!r} is not a commit of this repository")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        _git("worktree", "add", "--detach", str(tree), commit).check_returncode()
        try:
            for package in ("bench", "python_ref"):
                shutil.rmtree(tree / package, ignore_errors=True)
                shutil.copytree(machine.ROOT / package, tree / package)
            _build(tree, commit)
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree)).check_returncode()


class Worker:
    """One version of the package in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @cached_property
    def available(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return its backends' cases by label and backend; waits until it has started."""
        return {(row["label"], row["backend"]): row for row in self._read()}

    @classmethod
    @contextmanager
    def start(cls, tree: Path, arguments: Sequence[str]) -> Iterator["Worker"]:
        """Start the version of a tree, and end it at the end of the block."""
        command = [sys.executable, "-m", "bench.compare", *arguments]
        with subprocess.Popen(
            command, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield cls(process)
            finally:
                process.terminate()

    def sample(self, key: tuple[str, str], seed: int) -> float:
        """Return the microseconds of one launch of a case."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([*key, seed]) + "\n")
        self._process.stdin.flush()
        return float(self._read())

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("bench: a version of the package ended early, its error is above")
        return json.loads(line)


def work(device: str, threads: str, *names: str) -> None:
    """Be a worker: say what there is, then launch what each line of input asks for, and answer with its time."""
    torch.set_num_threads(int(threads))
    timer = clock(device)
    with torch.no_grad():
        measurements = {m.case.label: m for m in _admitted(device, names)}
        print(
            json.dumps([_describe(m, name) for m in measurements.values() for name in m.errors]), flush=True
        )
        current: tuple[list[Any], Launch] | None = None
        for line in sys.stdin:
            request = json.loads(line)
            if current is None or current[0] != request:
                label, backend, seed = request
                measurement = measurements[label]
                variant = next(v for v in measurement.admitted if v.name == backend)
                current = request, variant.bind(measurement.case.inputs(device, seed))
                warm_up(current[1], timer)
            print(timer.sample(current[1]), flush=True)


def _take_turns(
    old: Worker, new: Worker, key: tuple[str, str], seed: int, effort: Effort
) -> tuple[list[float], list[float]]:
    """Return samples of both versions, whose order changes every round."""
    samples: tuple[list[float], list[float]] = ([], [])
    start, turn = time.perf_counter(), 0
    while not effort.enough(turn, start):
        for side in (turn % 2, 1 - turn % 2):
            samples[side].append((old, new)[side].sample(key, seed))
        turn += 1
    return samples


def _row(case: dict[str, Any], old: list[list[float]], new: list[list[float]]) -> dict[str, Any]:
    return case | {
        "base_us": summary(old).median,
        "median_us": summary(new).median,
        "ratio": ratio(old, new),
        "noisy": noisy(new, old),
    }


def _admitted(device: str, names: Sequence[str]) -> Iterator[Measurement]:
    """Yield the cases of operators that this version has."""
    for name in names:
        try:
            cases = list(ops.cases((name,), device, quick=True))
        except ImportError:
            continue
        for case in cases:
            if any(variant.ours for variant in case.variants):
                measurement = Measurement(case)
                measurement.admit(device, rivals=False)
                yield measurement


def _describe(measurement: Measurement, backend: str) -> dict[str, Any]:
    case = measurement.case
    return {
        "label": case.label,
        "op": case.op,
        "shape": list(case.shape),
        "dtype": dtype_name(case.dtype),
        "setting": case.setting,
        "backend": backend,
    }


def _build(tree: Path, commit: str) -> None:
    """Compile a version's extension, or take that of the working tree where the sources are the same."""
    same = _git("diff", "--quiet", commit, "--", *SOURCES).returncode == 0
    compiled = list((machine.ROOT / "kpop_kernels").glob("_native*.so"))
    if same and compiled:
        for file in compiled:
            shutil.copy(file, tree / "kpop_kernels")
        return
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)


def _git(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(("git", *arguments), cwd=machine.ROOT, capture_output=True, text=True, check=False)


def main(base: str, names: Sequence[str], device: str, console: Console, file: Path | None) -> int:
    """Compare the working tree with a commit, print and write the result."""
    header = machine.header(device)
    rows = compare(base, names, device, torch.get_num_threads(), QUICK)
    show(rows, base, console)
    if file is not None:
        output.write({"machine": header, "base": base, "changes": rows}, file)
    return 0


if __name__ == "__main__":
    work(*sys.argv[1:])
