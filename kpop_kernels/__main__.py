"""``python -m kpop_kernels``: versions, devices, what serves each operator and why not, a self-test."""

import platform
from collections.abc import Iterable, Iterator
from importlib import metadata

import torch

from . import __version__, backends, selftest
from ._schema import OPERATORS
from ._schema.checks import FLOATING
from ._table import table as table


def main() -> int:
    """Print the report and return the exit status: 1 when a backend misses a known value."""
    devices = device_types()
    print("\n".join(table(versions())), end="\n\n")
    print("\n".join(table(serving_rows(devices))), end="\n\n")
    outcomes = list(selftest.run(devices))
    print("\n".join(table(outcome_rows(outcomes))))
    failed = sum(not outcome.passed for outcome in outcomes)
    print(f"\n{failed} of {len(outcomes)} self-tests failed" if failed else "\nall self-tests passed")
    return 1 if failed else 0


def device_types() -> tuple[str, ...]:
    """Return the device types of this machine, the CPU first."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return ("cpu",) if accelerator is None else ("cpu", accelerator.type)


def versions() -> Iterator[tuple[str, str]]:
    """Yield what is installed and what it runs on."""
    yield "kpop_kernels", __version__
    yield "python", platform.python_version()
    yield "torch", torch.__version__
    yield "triton", installed_version("triton")
    yield "platform", f"{platform.system()} {platform.machine()}"
    for device in device_types():
        yield device, _describe(device)


def installed_version(distribution: str) -> str:
    """Return a distribution's version without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def serving_rows(devices: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield for each operator, device type and backend the dtypes it serves, or why it serves none."""
    yield "operator", "device", "backend", "serves"
    for op in OPERATORS:
        for device in devices:
            preferred = backends.ORDER.get(device, ("composite",))
            for name in (*preferred, *(name for name in backends.NAMES if name not in preferred)):
                yield op, device, name, _serves(op, device, name)


def outcome_rows(outcomes: Iterable[selftest.Outcome]) -> Iterator[tuple[str, ...]]:
    """Yield what each self-test found."""
    yield "self-test", "device", "backend", "outcome"
    for outcome in outcomes:
        verdict = "passed" if outcome.passed else f"FAILED: off by {outcome.deviation:.3g}"
        yield outcome.op, outcome.device, outcome.backend, verdict


def _describe(device: str) -> str:
    """Name a device type's hardware and how it is used."""
    if device == "cuda":
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return ", ".join(names)
    if device != "cpu":
        return f"{torch.accelerator.device_count()} devices"
    threads = f"threads: {torch.get_num_threads()}"
    reason = backends.available()["cpu"]
    if reason is not None:
        return f"no kernels ({reason}), {threads}"
    from .backends.cpu import native

    return f"{native.kernels().isa} kernels, {threads}"


def _serves(op: str, device: str, name: str) -> str:
    """Say which dtypes a backend is chosen for, or why it never is."""
    reason = backends.get(name).why_not(op, device)
    if reason is not None:
        return f"no: {reason}"
    chosen = {dtype: backends.serving(op, torch.empty(0, dtype=dtype, device=device)) for dtype in FLOATING}
    dtypes = [str(dtype).removeprefix("torch.") for dtype in FLOATING if chosen[dtype].name == name]
    return ", ".join(dtypes) or f"no: {' and '.join({b.name for b in chosen.values()})} is preferred"


if __name__ == "__main__":
    raise SystemExit(main())
