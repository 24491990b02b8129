"""Measure from which order on eigh beats Newton–Schulz on this CPU, and write the table the package reads.

    python bench/tune_inverse_root_cpu.py

Both run through the package's own operator, alternating, on a batch of matrices that take 5, 7 and 10 steps;
eigh must win by 5 %. The best of several rounds counts, which other work on the machine disturbs least.
"""

import json
import math
import time
from pathlib import Path
from typing import Literal

import torch

import kpop_kernels
from kpop_kernels import _native
from kpop_kernels.backends.cpu import native

ORDERS = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256, 320, 384, 512, 640, 768, 1024)
SMALLEST = {5: 10**-1.2, 7: 10**-2.8, 10: 1e-5}
"""Smallest eigenvalue of matrices that take so many steps; the largest is 1."""
ISAS = ("baseline", "avx2", "avx512")
TABLE = Path(kpop_kernels.__file__).parent / "tuning/inverse_root_cpu.json"


def available_isas() -> list[str]:
    """Return the instruction sets that this processor runs, the best one last."""
    best = _native.Cpu().isa
    return list(ISAS[: ISAS.index(best) + 1])


def ratio(n: int, steps: int, rounds: int = 7) -> float:
    """Return the best time of eigh over that of Newton–Schulz for matrices of order n that take so many steps."""
    generator = torch.Generator().manual_seed(0)
    batch = 8 if n <= 256 else 2
    Q = torch.linalg.qr(torch.randn(batch, n, n, generator=generator)).Q
    A = (Q * torch.logspace(0, math.log10(SMALLEST[steps]), n)) @ Q.mT
    best: dict[Literal["eigh", "newton_schulz"], float] = {"eigh": math.inf, "newton_schulz": math.inf}
    for _ in range(rounds):
        for method in best:
            start = time.perf_counter()
            kpop_kernels.inverse_root(A, method=method)
            best[method] = min(best[method], time.perf_counter() - start)
    return best["eigh"] / best["newton_schulz"]


def crossover(steps: int) -> int:
    """Return the smallest order that eigh wins, searched by bisection: the ratio falls with the order."""
    low, high = 0, len(ORDERS)
    while low < high:
        middle = (low + high) // 2
        measured = ratio(ORDERS[middle], steps)
        print(f"    {steps} steps, n = {ORDERS[middle]}: eigh takes {measured:.2f} times as long", flush=True)
        low, high = (low, middle) if measured < 0.95 else (middle + 1, high)
    return ORDERS[low] if low < len(ORDERS) else 2 * ORDERS[-1]


def main() -> None:
    """Measure every instruction set with one thread and with all, and write the table."""
    every = torch.get_num_threads()
    counts = sorted({1, 2 ** int(math.log2(every))})
    table = json.loads(TABLE.read_text())["eigh_from"]
    for isa in available_isas():
        with native.using(isa):
            table[isa] = {}
            for count in counts:
                torch.set_num_threads(count)
                print(f"{isa}, {count} threads", flush=True)
                table[isa][str(count)] = {str(steps): crossover(steps) for steps in SMALLEST}
    TABLE.write_text(json.dumps({"eigh_from": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
