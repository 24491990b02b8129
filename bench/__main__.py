"""Measure the operators against their rivals and the machine's limits, and make tables of the results.

python -m bench                        every operator and optimizer on this machine
python -m bench gram_ema step --quick  two of them, quickly
python -m bench --base main            what changed since a commit
python -m bench --check                correctness on the accelerator that is present, then its speed
"""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.console import Console

from bench import (
    agreement,
    check,
    compare,
    machine,
    ops,
    output,
    paper_table,
    plots,
    readme,
    scaling,
    support_matrix,
)
from bench.case import Case
from bench.optim import bench_step
from bench.run import Progress, run
from bench.timing import FULL, QUICK

WIDTH = 160
"""Columns of tables that go to a file."""

NAMES = (*ops.NAMES, "step", "scaling")


def main(arguments: list[str] | None = None) -> int:
    """Run the job that the arguments name and return its exit status."""
    options = _parser().parse_args(arguments)
    if unknown := set(options.ops) - set(NAMES):
        allowed = ", ".join(NAMES)
        print(f"bench: there is no {', '.join(sorted(unknown))}, it must be of {allowed}", file=sys.stderr)
        return 2
    if options.support_matrix:
        return support_matrix.main()
    if options.readme:
        return readme.main()
    if options.paper_table:
        return paper_table.main()
    torch.set_num_threads(options.threads or machine.cores())
    if options.check:
        return check.main(options.device)
    names = tuple(options.ops) or NAMES
    device = options.device or machine.accelerator() or "cpu"
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    if options.base:
        compared = tuple(name for name in names if name in ops.NAMES)
        return compare.main(options.base, compared, device, console, options.json)
    return _measure(names, device, options, console)


def _measure(names: tuple[str, ...], device: str, options: argparse.Namespace, console: Console) -> int:
    with _progress() as progress:
        cases = list(_cases(names, device, quick=options.quick))
        report = run(cases, device, QUICK if options.quick else FULL, progress)
        if "scaling" in names:
            report["scaling"] = scaling.measure(device, quick=options.quick, progress=progress)
    report["machine"]["command"] = _command(options)
    report = output.rounded(report)
    if options.confirm:
        agreement.confirm(report, json.loads(options.confirm.read_text()))
    output.show(report, console)
    if options.json:
        output.write(report, options.json)
    if options.plot:
        for file in plots.write(report, (options.json or machine.results_file(device)).with_suffix("")):
            console.print(f"written {file.name}")
    return 1 if report["wrong"] else 0


def _cases(names: tuple[str, ...], device: str, *, quick: bool) -> Iterator[Case]:
    yield from ops.cases(tuple(name for name in names if name in ops.NAMES), device, quick=quick)
    if "step" in names:
        yield from bench_step.cases(device, quick=quick)


def _command(options: argparse.Namespace) -> str:
    """Return the command that makes the same measurement."""
    words = ["python -m bench", *options.ops]
    words += ["--quick"] if options.quick else []
    words += [f"--device {options.device}"] if options.device else []
    words += [f"--threads {options.threads}"] if options.threads else []
    words += [f"--confirm {options.confirm.name}"] if options.confirm else []
    return " ".join(words)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show what is being measured on one line of a terminal; nothing elsewhere."""
    with Console(stderr=True).status("") as status:
        yield status.update


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "ops", nargs="*", metavar="op", help=f"what to measure, all if none: {', '.join(NAMES)}"
    )
    parser.add_argument("--device", choices=("cuda", "mps", "cpu"), help="default: the accelerator, if any")
    parser.add_argument("--threads", type=int, help="CPU threads; default: one for each core")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds, minutes in all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report to a file")
    parser.add_argument(
        "--confirm",
        type=Path,
        metavar="FILE",
        help="an earlier report of this commit: ratios that differ from it by more than 5 %% are marked as noisy",
    )
    parser.add_argument("--plot", action="store_true", help="also write roofline and times as PNG and SVG")
    job = parser.add_mutually_exclusive_group()
    job.add_argument("--base", metavar="REF", help="compare the working tree with a commit")
    job.add_argument(
        "--check", action="store_true", help="check every operator on the device, write its file"
    )
    job.add_argument("--support-matrix", action="store_true", help="write the support matrix into README.md")
    job.add_argument("--readme", action="store_true", help="write the tables of speed into README.md")
    job.add_argument(
        "--paper-table", action="store_true", help="print the optimizer memory of Clean's Table 3"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
