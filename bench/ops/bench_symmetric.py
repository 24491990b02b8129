"""Products that are known to be symmetric: one triangle of operations, and a mirrored store."""

from collections.abc import Callable, Iterator

import torch

from bench.case import Case, Inputs, Results, Variant, compiled, normal, ours, spd
from kpop_kernels.backends.composite.symmetric import symm_mm, syrk

OPS = ("symm_mm", "syrk")
QUICK = ((128, 128), (512, 1024), (1024, 1024))
FULL = (*QUICK, (2048, 2048), (3072, 768))


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield n×k for both operators, square only where two factors commute."""
    for n, k in QUICK if quick else FULL:
        yield _syrk(n, k, device)
        if n == k:
            yield _symm_mm(n, device)


def _syrk(n: int, k: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        return {"X": normal((n, k), torch.float32, generator), "out": torch.empty(n, n)}

    def call(op: Callable[..., object], inputs: Inputs) -> Results:
        op(inputs["X"], C=None, alpha=1.0, beta=0.0, side="left", out=inputs["out"])
        return (inputs["out"],)

    def oracle(inputs: Inputs) -> Results:
        X = inputs["X"].to(torch.float64)
        return (X @ X.mT,)

    def matmul(inputs: Inputs) -> Results:
        torch.matmul(inputs["X"], inputs["X"].mT, out=inputs["out"])
        return (inputs["out"],)

    rivals = (compiled(syrk, call), Variant("torch.matmul", matmul))
    own = ours("syrk", call, device, torch.float32)
    return Case(
        op="syrk",
        shape=(n, k),
        dtype=torch.float32,
        bytes=4 * (n * k + n * n),
        flops=n * (n + 1) * k,
        make=make,
        oracle=oracle,
        bound=1e-5,
        variants=(*own, *rivals),
    )


def _symm_mm(n: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        A = spd(n, 10.0, generator)
        return {"A": A.to(torch.float32), "B": (A @ A).to(torch.float32), "out": torch.empty(n, n)}

    def call(op: Callable[..., object], inputs: Inputs) -> Results:
        op(inputs["A"], inputs["B"], C=None, alpha=1.0, beta=0.0, out=inputs["out"])
        return (inputs["out"],)

    def oracle(inputs: Inputs) -> Results:
        return (inputs["A"].to(torch.float64) @ inputs["B"].to(torch.float64),)

    def matmul(inputs: Inputs) -> Results:
        torch.matmul(inputs["A"], inputs["B"], out=inputs["out"])
        return (inputs["out"],)

    rivals = (compiled(symm_mm, call), Variant("torch.matmul", matmul))
    own = ours("symm_mm", call, device, torch.float32)
    return Case(
        op="symm_mm",
        shape=(n, n),
        dtype=torch.float32,
        bytes=4 * 3 * n * n,
        flops=n * (n + 1) * n,
        make=make,
        oracle=oracle,
        bound=1e-5,
        variants=(*own, *rivals),
    )
