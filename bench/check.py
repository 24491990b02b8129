"""Runs every operator of every backend on a device and compares it with the oracle."""

import json
import platform
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from torch import Tensor

from bench.suite import problem
from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS

RESULTS = Path(__file__).parent / "results"
ERROR_BOUND = 16.0
"""Largest relative Frobenius error, in units of the result's machine epsilon."""


@dataclass(frozen=True)
class Device:
    """What the suite runs on.

    Attributes:
        type: torch's name for the kind of device.
        name: What it says it is.
        target: The architecture that kernels are compiled for, as the support matrix names it.
    """

    type: str
    name: str
    target: str


@dataclass(frozen=True)
class Result:
    """How one operator of one backend did in one dtype."""

    op: str
    backend: str
    dtype: str
    error: float
    passed: bool


def accelerator() -> str | None:
    """Return the type of the accelerator that is present."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else None


def describe(device_type: str) -> Device:
    """Return the first device of a type."""
    if device_type == "cpu":
        return Device("cpu", f"{platform.machine()} CPU", platform.machine())
    if device_type == "mps":
        return Device("mps", f"Apple {platform.machine()}", "Apple")
    properties = torch.cuda.get_device_properties(0)
    if torch.version.hip:
        return Device("cuda", properties.name, properties.gcnArchName.split(":")[0])
    return Device("cuda", properties.name, f"sm_{properties.major}{properties.minor}")


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
    tensors = {name: tensor.to(device_type, copy=True) for name, tensor in given.tensors.items()}
    zero_dim = {name: torch.tensor(value, dtype=torch.float32) for name, value in given.zero_dim.items()}
    with backends.trace() as served:
        returned = getattr(backends.get(backend), op)(*tensors.values(), **given.scalars, **zero_dim)
    assert served == {(op, backend): 1}, f"{op}: {served} ran in place of {backend}"
    if returned is None:
        results = tuple(tensors[name] for name in OPERATORS[op].written)
    else:
        results = (returned,) if isinstance(returned, Tensor) else tuple(returned)
    error = max(map(_error, results, given.expected()))
    return Result(op, backend, str(dtype).removeprefix("torch."), error, error <= ERROR_BOUND)


def main(device_type: str | None = None) -> int:
    """Check a device, the accelerator unless one is named; write its results and return 0 if all passed."""
    device_type = device_type or accelerator()
    if device_type is None:
        print("There is no accelerator here, so nothing was checked; --device cpu checks the processor.")
        return 0
    device = describe(device_type)
    results = list(run(device_type))
    for result in results:
        verdict = "ok" if result.passed else f"FAILED, the bound is {ERROR_BOUND:g}"
        print(f"{result.op:18}{result.backend:12}{result.dtype:10}{result.error:8.2f} eps  {verdict}")
    file = RESULTS / f"{re.sub(r'[^a-z0-9]+', '-', device.name.lower())}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(_report(device, results), indent=1) + "\n")
    print(f"{device.name}: {sum(r.passed for r in results)} of {len(results)} passed, written to {file.name}")
    return 0 if all(result.passed for result in results) else 1


def _error(result: Tensor, expected: Tensor) -> float:
    difference = torch.linalg.norm(result.cpu().to(torch.float64) - expected)
    return float(difference / torch.linalg.norm(expected) / torch.finfo(result.dtype).eps)


def _report(device: Device, results: list[Result]) -> dict[str, object]:
    return {
        "device": device.name,
        "target": device.target,
        "date": date.today().isoformat(),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "results": [asdict(result) for result in results],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
