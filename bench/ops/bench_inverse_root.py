"""Inverse roots of symmetric positive definite matrices, by iteration or by eigenvalues.

What is charged are the operations of the eigendecomposition and one triangle of a product: the iteration does
more, in products that run faster.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import python_ref.inverse_root
from bench.case import Case, Inputs, Results, Variant, compiled, ours, spd
from bench.ops import bench_refresh
from kpop_kernels import coefficients
from kpop_kernels.backends.composite.inverse_root import inverse_root

OPS = ("inverse_root",)
QUICK = ((16, 32, 2), (1, 128, 2), (1, 512, 2), (1, 128, 4))
FULL = (*QUICK, (64, 64, 2), (1, 1024, 2), (1, 2048, 2), (1, 512, 4))
CONDITION = 1e3


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield batches of small matrices, and single ones up to long sides."""
    for batch, n, p in QUICK if quick else FULL:
        yield case(n, p, device, batch=batch)


def case(n: int, p: int, device: str, *, batch: int = 1) -> Case:
    """Return A^(-1/p) of `batch` matrices."""

    def make(generator: torch.Generator) -> Inputs:
        A = torch.stack([spd(n, CONDITION, generator) for _ in range(batch)]).to(torch.float32)
        return {"A": A, "root": torch.empty_like(A), "bound": torch.empty(batch)}

    def oracle(inputs: Inputs) -> Results:
        return (python_ref.inverse_root.inverse_root(inputs["A"], p),)

    call = partial(_call, p)
    return Case(
        op="inverse_root",
        shape=(n, n) if batch == 1 else (batch, n, n),
        dtype=torch.float32,
        bytes=batch * 2 * 4 * n * n,
        flops=batch * (bench_refresh.flops(n) + n**3),
        make=make,
        oracle=oracle,
        bound=1e-3,
        variants=(
            *ours("inverse_root", call, device, torch.float32),
            compiled(inverse_root, call),
            Variant("torch.linalg.eigh", partial(_eigh, p)),
        ),
        setting=f"p={p}",
    )


def _call(p: int, op: Callable[..., object], inputs: Inputs) -> Results:
    op(inputs["A"], p, out=(inputs["root"], inputs["bound"]), **_options())
    return (inputs["root"],)


def _options() -> dict[str, Any]:
    return {
        "damping": 0.0,
        "relative_damping": 0.0,
        "method": "auto",
        "schedule": [float(c) for pair in coefficients.inverse_root_schedule("cushioned") for c in pair],
        "second_stage": [float(c) for pair in coefficients.second_stage() for c in pair],
        "precision": "auto",
    }


def _eigh(p: int, inputs: Inputs) -> Results:
    eigvals, Q = torch.linalg.eigh(inputs["A"])
    return ((Q * eigvals.pow(-1 / p).unsqueeze(-2)) @ Q.mT,)
