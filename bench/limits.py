"""The limits of the machine, measured in the same run: how fast it copies, and how fast it multiplies."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from bench.case import dtype_name
from bench.timing import Clock

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
COPY_BYTES = tuple(2**e for e in (14, 16, 18, 20, 22, 24, 26, 28))
GEMM_SIZES = (256, 512, 1024, 2048, 4096, 8192)

# A longer product would teach nothing new and, where a dtype has no fast path, take minutes.
LONGEST_GEMM_US = 2e5

LEAST_SAMPLES, MOST_SAMPLES, ENOUGH_US = 3, 100, 1e5


@dataclass
class Limits:
    """What no operator can beat.

    Attributes:
        copy_gb_s: Bytes read and written a nanosecond by a copy or in place, by the bytes moved: small ones stay
            in a cache.
        gemm_gflop_s: Operations a nanosecond of a square torch.matmul, by dtype.
    """

    copy_gb_s: dict[int, float]
    gemm_gflop_s: dict[str, float]

    def bandwidth(self, moved: int) -> float:
        """Return GB/s for a number of bytes, interpolated between the measured sizes."""
        sizes = sorted(self.copy_gb_s)
        if moved <= sizes[0] or moved >= sizes[-1]:
            return self.copy_gb_s[sizes[0] if moved <= sizes[0] else sizes[-1]]
        above = next(size for size in sizes if size >= moved)
        below = sizes[sizes.index(above) - 1]
        share = math.log(moved / below) / math.log(above / below)
        return self.copy_gb_s[below] ** (1 - share) * self.copy_gb_s[above] ** share

    def least_us(self, moved: int, flops: int, dtype: torch.dtype) -> float:
        """Return the microseconds that moving bytes or multiplying takes at least, whichever is longer."""
        # Operands of a dtype without fast units can be widened first.
        rate = max(self.gemm_gflop_s[dtype_name(dtype)], self.gemm_gflop_s["float32"])
        return max(moved / self.bandwidth(moved), flops / rate) / 1000

    def best_of(self, other: "Limits") -> "Limits":
        """Return the higher limit of two measurements, size by size."""
        return Limits(
            {size: max(rate, other.copy_gb_s[size]) for size, rate in self.copy_gb_s.items()},
            {dtype: max(rate, other.gemm_gflop_s[dtype]) for dtype, rate in self.gemm_gflop_s.items()},
        )

    def report(self) -> dict[str, Any]:
        """Return the limits as JSON has them."""
        return asdict(self)


def read(report: dict[str, Any]) -> Limits:
    """Return the limits of a report, whose keys JSON has turned into text."""
    return Limits({int(size): rate for size, rate in report["copy_gb_s"].items()}, report["gemm_gflop_s"])


def measure(device: str, timer: Clock) -> Limits:
    """Measure the limits of a device."""
    return Limits(
        {size: _copy_rate(size, device, timer) for size in COPY_BYTES},
        {dtype_name(dtype): _gemm_rate(dtype, device, timer) for dtype in DTYPES},
    )


def _copy_rate(moved: int, device: str, timer: Clock) -> float:
    """Return the better rate of a copy and of an addition in place, which need not fetch what it overwrites."""
    source = torch.zeros(moved // 8, device=device)
    target = torch.empty_like(source)
    both = torch.zeros(moved // 8, device=device)
    copy = _fastest(lambda: target.copy_(source), timer)
    return moved / min(copy, _fastest(lambda: both.add_(1.0), timer)) / 1000


def _gemm_rate(dtype: torch.dtype, device: str, timer: Clock) -> float:
    best = 0.0
    for n in GEMM_SIZES:
        A = torch.randn(n, n, device=device).to(dtype)
        C = torch.empty_like(A)
        elapsed = _fastest(lambda A=A, C=C: torch.matmul(A, A, out=C), timer)  # type: ignore[misc]
        best = max(best, 2 * n**3 / elapsed / 1000)
        if elapsed * 8 > LONGEST_GEMM_US:
            break
    return best


def _fastest(launch: Callable[[], object], timer: Clock) -> float:
    """Return the shortest time: a limit is what the machine can do, not what it does on average."""
    launch()
    samples: list[float] = []
    while len(samples) < LEAST_SAMPLES or (sum(samples) < ENOUGH_US and len(samples) < MOST_SAMPLES):
        samples.append(timer.sample(launch))
    return min(samples)
