"""Runs every operator of every backend on a device and compares it with the oracle."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from itertools import chain
from typing import Any

import torch
from rich.console import Console

from bench import device_checks, machine, ops, output, peers, timing
from bench import run as speed
from bench.suite import problem
from bench.verdict import Result, judge, prepare
from kpop_kernels import backends


def run(device_type: str) -> Iterator[Result]:
    """Check every operator of every backend that serves a device type."""
    for name, reason in backends.available().items():
        backend = backends.get(name)
        if reason is not None or (backend.devices and device_type not in backend.devices):
            continue
        for op in backend.operators:
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                yield check(op, name, dtype, device_type)


def check(op: str, backend: str, dtype: torch.dtype, device_type: str) -> Result:
    """Compare one operator of one backend with the oracle."""
    given = problem(op, dtype)
    results = prepare(op, backend, given, device_type).launch()
    return judge(op, backend, "values", results, given.expected(), dtype, given.bound)


def main(device_type: str | None = None) -> int:
    """Check a device, the accelerator unless one is named; write its results and return 0 if all passed.

    An accelerator's speed is measured too, so that its file is complete.
    """
    device_type = device_type or machine.accelerator()
    if device_type is None:
        print("There is no accelerator here, so nothing was checked; --device cpu checks the processor.")
        return 0
    device = machine.describe(device_type)
    results = []
    for result in chain(run(device_type), device_checks.run() if device_type == "cuda" else ()):
        verdict = "ok" if result.passed else "FAILED"
        what = f"{result.op:32}{result.backend:12}{result.dtype:10}{result.check:14}"
        print(f"{what}{result.error:8.2f} eps  {verdict}")
        results.append(result)
    file = machine.results_file(device_type)
    output.write(_report(device, results), file)
    print(f"{device.name}: {sum(r.passed for r in results)} of {len(results)} passed, written to {file.name}")
    if device_type != "cpu":
        cases = list(ops.cases(ops.NAMES, device_type, quick=True))
        report = speed.run(cases, device_type, timing.QUICK, print)
        output.show(report, Console())
        output.write(report, file)
    return 0 if all(result.passed for result in results) else 1


def _report(device: machine.Device, results: list[Result]) -> dict[str, Any]:
    return {
        "device": device.name,
        "target": device.target,
        "date": date.today().isoformat(),
        "torch": torch.__version__,
        "triton": peers.installed_version("triton"),
        "results": [asdict(result) for result in results],
    }
