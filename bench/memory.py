"""High-water marks of memory, each measured in a process of its own."""

import ctypes
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from bench.case import Case
from bench.machine import ROOT
from bench.ops import bench_gram_ema, bench_kron_adam, bench_kron_rotate, bench_rebase_moments

SIDE = 2048


def cases(device: str) -> dict[str, Case]:
    """Return the cases whose memory is measured."""
    return {
        "gram_ema_": bench_gram_ema.case(SIDE, SIDE, device),
        "kron_rotate": bench_kron_rotate.case(SIDE, SIDE, device),
        "kron_adam_": bench_kron_adam.case(SIDE, SIDE, device),
        "rebase_moments_": bench_rebase_moments.case(SIDE, SIDE, device),
    }


def measurable(device: str) -> bool:
    """Tell whether the high-water mark of a device can be set back here."""
    return device == "cuda" or (device == "cpu" and platform.libc_ver()[0] == "glibc")


def peaks(device: str) -> list[dict[str, Any]]:
    """Return how far one launch of each backend raises the high-water mark above its inputs and outputs."""
    found: list[dict[str, Any]] = []
    for op, case in cases(device).items() if measurable(device) else ():
        inputs = sum(tensor.numel() * tensor.itemsize for tensor in case.inputs("cpu").values())
        for variant in case.variants:
            if variant.ours:
                command = [sys.executable, "-m", "bench.memory", op, variant.name, device]
                done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
                row = {"op": op, "backend": variant.name, "shape": list(case.shape), "input_bytes": inputs}
                found.append(row | {"extra_bytes": int(done.stdout)})
    return found


def extra_bytes(op: str, backend: str, device: str) -> int:
    """Return the bytes that a launch needs besides inputs and outputs; a first launch may set things up."""
    case = cases(device)[op]
    variant = next(variant for variant in case.variants if variant.name == backend and variant.ours)
    with torch.no_grad():
        launch = variant.bind(case.inputs(device))
        launch()
        before = _reset(device)
        launch()
        return _high_water(device) - before


def _reset(device: str) -> int:
    """Set the high-water mark back to what is in use, and return that."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        # What the first launch freed would otherwise still count as in use.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    return _high_water(device)


def _high_water(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kilobytes) * 1024


if __name__ == "__main__":
    print(extra_bytes(*sys.argv[1:4]))
