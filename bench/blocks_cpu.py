"""Time of the 8-bit operators over that of torch's copy_, for each instruction set of this processor.

    python bench/blocks_cpu.py [--elements 16777216] [--threads 1]

All take turns on float32 tensors of one size with results that exist already; a number is the median of ratios
within a round. An operator whose blocks are not composite's to the bit gets no time.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor

from bench import machine
from bench.tune_inverse_root_cpu import available_isas
from kpop_kernels import backends
from kpop_kernels.backends.cpu import native

BLOCK = 256
GATE = 64 * BLOCK
"""Elements of each operator that are compared with composite."""

STEP = torch.zeros((), dtype=torch.int64)
KEY: dict[str, Any] = {"seed": 1, "step": STEP, "stream": 0, "offset": 0}

Operators = dict[str, Callable[[], Any]]


class Tensors:
    """What the operators read and write: values, affine blocks, dynamic blocks."""

    def __init__(self, elements: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(elements, generator=generator)
        self.out = torch.zeros_like(self.x)
        self.codes = torch.zeros(elements, dtype=torch.uint8)
        self.scales = torch.ones(-(-elements // BLOCK))
        self.zero_points = torch.zeros_like(self.scales, dtype=torch.uint8)
        self.levels = torch.zeros_like(self.codes)
        self.absmax = torch.ones_like(self.scales)

    @property
    def written(self) -> tuple[Tensor, ...]:
        """All that operators write."""
        return self.out, self.codes, self.scales, self.zero_points, self.levels, self.absmax


def operators(backend: backends.Backend, t: Tensors) -> Operators:
    """Return each operator on these tensors."""
    affine, dynamic = (t.codes, t.scales, t.zero_points), (t.levels, t.absmax)
    return {
        "quantize_int8 stochastic": lambda: backend.quantize_int8(t.x, **KEY, out=affine),
        "quantize_int8 nearest": lambda: backend.quantize_int8(
            t.x, rounding="nearest", stream=0, offset=0, out=affine
        ),
        "dequantize_int8": lambda: backend.dequantize_int8(*affine, out=t.out),
        "ema_int8_": lambda: backend.ema_int8_(*affine, t.x, beta=0.9, **KEY, out=t.out),
        "quantize_dynamic8": lambda: backend.quantize_dynamic8(t.x, out=dynamic),
        "dequantize_dynamic8": lambda: backend.dequantize_dynamic8(*dynamic, out=t.out),
        "ema_sq_dynamic8_": lambda: backend.ema_sq_dynamic8_(*dynamic, t.x, beta=0.95, out=t.out),
    }


def gate() -> None:
    """Raise AssertionError unless the C++ kernels in use give composite's bits, one operator after the other."""
    ours, theirs = Tensors(GATE), Tensors(GATE)
    expected = operators(backends.get("composite"), theirs)
    for name, run in operators(backends.get("cpu"), ours).items():
        run(), expected[name]()
        for one, other in zip(ours.written, theirs.written, strict=True):
            assert torch.equal(one, other), f"{name}: not composite's bits"


def ratios(elements: int, rounds: int) -> dict[str, float]:
    """Return the median ratio of each operator with the kernels in use."""
    t = Tensors(elements)
    copy = torch.empty_like(t.x)
    variants: Operators = {"copy_": lambda: copy.copy_(t.x), **operators(backends.get("cpu"), t)}
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds + 1):
        for name, run in variants.items():
            start = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - start)
    pairs = {name: zip(times[1:], taken["copy_"][1:], strict=True) for name, times in taken.items()}
    return {name: median(own / other for own, other in pair) for name, pair in pairs.items()}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--elements", type=int, default=2**24)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    columns = {}
    for isa in reversed(available_isas()):
        with native.using(isa):
            gate()
            columns[isa] = ratios(options.elements, options.rounds)
    print(f"{machine.processor()}, {options.threads} threads, {options.elements} elements; copy_ is 1")
    print(f"{'':26}" + "".join(f"{isa:>10}" for isa in columns))
    for name in next(iter(columns.values())):
        print(f"{name:26}" + "".join(f"{column[name]:10.2f}" for column in columns.values()))


if __name__ == "__main__":
    main()
