"""How cost grows, what memory peaks at, and what a call and an import cost."""

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

import kpop_kernels
from bench import memory
from bench.case import Case
from bench.machine import ROOT
from bench.ops import bench_gram_ema, bench_kron_adam, bench_kron_rotate, bench_refresh
from bench.optim import bench_step
from bench.optim.contenders import contenders
from bench.run import Measurement, Progress
from bench.timing import Clock, CpuClock, Effort, clock, disagree, take_turns

EFFORT = Effort(seconds=0.2, least_rounds=5, most_rounds=50, longest=4.0)
CALLS = Effort(seconds=1.0, least_rounds=100, most_rounds=2000, longest=4.0)
IMPORTS = 5

IMPORT = """
import time, torch
start = time.perf_counter()
import kpop_kernels
print((time.perf_counter() - start) * 1e6)
"""


@dataclass(frozen=True)
class Series:
    """Cases that differ in one size.

    Attributes:
        name: What is computed.
        against: The size that grows.
        sizes: Its values.
        case: Makes the case of a size.
    """

    name: str
    against: str
    sizes: tuple[int, ...]
    case: Callable[[int], Case]


def series(device: str, *, quick: bool) -> list[Series]:
    """Return every series: cost against n, against the batch, against the number of parameters."""
    sides = (128, 256, 512) if quick else (128, 256, 512, 1024, 2048)
    batches = (1, 4, 16) if quick else (1, 4, 16, 64)
    matrices = (1, 4, 16)

    def steps(count: int) -> Case:
        shapes = ((128, 128),) * count
        return bench_step.case(f"{count} of 128×128", shapes, (c for c in contenders() if c.ours), quick=True)

    return [
        Series("gram_ema_ n×n", "n", sides, lambda n: bench_gram_ema.case(n, n, device)),
        Series("kron_rotate n×n", "n", sides, lambda n: bench_kron_rotate.case(n, n, device)),
        Series("kron_adam_ n×n", "n", sides, lambda n: bench_kron_adam.case(n, n, device)),
        Series("refresh n×n", "n", sides, bench_refresh.case),
        Series("gram_ema_ 96×256", "batch", batches, lambda b: bench_gram_ema.case(96, 256, device, batch=b)),
        Series("kron_adam_ 96×96", "batch", batches, lambda b: bench_kron_adam.case(96, 96, device, batch=b)),
        Series("refresh 96×96", "batch", batches, lambda b: bench_refresh.case(96, batch=b)),
        Series("step of 128×128 matrices", "matrices", matrices, steps),
    ]


def measure(device: str, *, quick: bool, progress: Progress) -> dict[str, Any]:
    """Return slopes, memory, overhead of a call and of the import."""
    timer = clock(device)
    slopes = []
    for one in series(device, quick=quick):
        progress(f"scaling of {one.name} with {one.against}")
        slopes += _slopes(one, device, timer)
    progress("overhead of a call")
    calls = call_overhead(device)
    progress("peak memory")
    peaks = memory.peaks(device)
    progress("import")
    return {"slopes": slopes, "call_us": calls, "memory": peaks, "import_us": import_time()}


def slope(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Return the exponent of the power law that fits best: the slope of a line through logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(time) for time in times]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - mean_x) ** 2 for a in x)


def call_overhead(device: str) -> dict[str, float]:
    """Return the microseconds of a call on a 1×1 matrix: through torch's dispatcher, directly, in plain torch.

    It is the host's time: the work itself is nothing, and the device is not waited for.
    """
    S, X = torch.ones(1, 1, device=device), torch.ones(1, 1, device=device)
    options = bench_gram_ema.SCALARS
    backend = kpop_kernels.backends.serving("gram_ema_", S)
    launches: dict[str, Callable[[], Tensor | None]] = {
        "gram_ema_": lambda: kpop_kernels.gram_ema_(S, X, **options),
        f"gram_ema_ of {backend.name}, not dispatched": lambda: backend.gram_ema_(S, X, **options),
        "torch.addmm": lambda: torch.addmm(S, X, X.mT, beta=0.95, alpha=0.05, out=S),
    }
    with torch.no_grad():
        samples = take_turns(launches, CpuClock(), CALLS)
    return {name: median(times) for name, times in samples.items()}


def import_time() -> dict[str, float]:
    """Return the median, over new processes, of the time to import the package after torch."""
    command = [sys.executable, "-c", IMPORT]
    times = [
        float(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
        for _ in range(IMPORTS)
    ]
    return {"after torch": median(times)}


def _slopes(one: Series, device: str, timer: Clock) -> list[dict[str, Any]]:
    measurements = [Measurement(one.case(size)) for size in one.sizes]
    with torch.no_grad():
        for measurement in measurements:
            measurement.admit(device, rivals=False)
        for half in range(2):
            for measurement in measurements:
                measurement.measure(device, timer, EFFORT, seed=half)
    backends = [name for name in measurements[0].errors if all(name in m.errors for m in measurements)]
    return [_line(one, name, [m.halves[name] for m in measurements]) for name in backends]


def _line(one: Series, backend: str, halves: list[list[list[float]]]) -> dict[str, Any]:
    times = [median([sample for half in of_size for sample in half]) for of_size in halves]
    repeated = [slope(one.sizes, [median(of_size[half]) for of_size in halves]) for half in range(2)]
    return {
        "op": one.name,
        "against": one.against,
        "backend": backend,
        "sizes": list(one.sizes),
        "median_us": times,
        "slope": slope(one.sizes, times),
        "noisy": disagree(repeated),
    }
