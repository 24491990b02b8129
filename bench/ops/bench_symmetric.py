"""Products known to be symmetric: one triangle computed, both stored."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import python_ref.symmetric
from bench.case import Case, Inputs, Results, Variant, normal, ours, spd

OPS = ("symm_mm", "syrk")
CONDITION = 1e2
QUICK = ((32, 64), (1, 256), (1, 512))
FULL = (*QUICK, (1, 64), (8, 96), (4, 128), (1, 1024), (1, 2048))
QUICK_LONG = ((64, 256), (512, 2048))
FULL_LONG = (*QUICK_LONG, (96, 1024), (768, 3072), (2048, 2048))


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield batches of products of commuting n×n matrices, and products of n×k matrices with their transposes."""
    for dtype in (torch.float32, torch.bfloat16):
        for batch, n in QUICK if quick else FULL:
            yield symm_mm_case(n, device, batch=batch, dtype=dtype)
        for n, k in QUICK_LONG if quick else FULL_LONG:
            yield syrk_case(n, k, device, dtype=dtype)


def symm_mm_case(n: int, device: str, *, batch: int = 1, dtype: torch.dtype = torch.float32) -> Case:
    """Return AB for symmetric A and B = A² in the shape of an iteration's steps."""

    def make(generator: torch.Generator) -> Inputs:
        A = torch.stack([spd(n, CONDITION, generator) for _ in range(batch)])
        return {"A": A.to(dtype), "B": (A @ A).to(dtype), "out": torch.empty(batch, n, n, dtype=dtype)}

    return Case(
        op="symm_mm",
        shape=(n,) if batch == 1 else (batch, n),
        dtype=dtype,
        bytes=batch * 3 * dtype.itemsize * n * n,
        flops=batch * n * n * (n + 1),
        make=make,
        oracle=lambda inputs: (_product(inputs["A"], inputs["B"]),),
        bound=_bound(dtype),
        variants=(*ours("symm_mm", _call_symm_mm, device, dtype), Variant("torch.bmm", _bmm)),
    )


def syrk_case(n: int, k: int, device: str, *, batch: int = 1, dtype: torch.dtype = torch.float32) -> Case:
    """Return XXᵀ for `batch` n×k matrices."""

    def make(generator: torch.Generator) -> Inputs:
        return {"X": normal((batch, n, k), dtype, generator), "out": torch.empty(batch, n, n, dtype=dtype)}

    return Case(
        op="syrk",
        shape=(n, k) if batch == 1 else (batch, n, k),
        dtype=dtype,
        bytes=batch * dtype.itemsize * (n * k + n * n),
        flops=batch * n * (n + 1) * k,
        make=make,
        oracle=lambda inputs: (_product(inputs["X"], inputs["X"].mT),),
        bound=_bound(dtype),
        variants=(*ours("syrk", _call_syrk, device, dtype), Variant("torch.bmm", _bmm_transposed)),
    )


def _bound(dtype: torch.dtype) -> float:
    return max(2 * torch.finfo(dtype).eps, 1e-5)


def _product(A: Tensor, B: Tensor) -> Tensor:
    return python_ref.symmetric.symm_mm(A, B, torch.zeros(()), alpha=1.0, beta=0.0)


def _call_symm_mm(op: Callable[..., object], inputs: Inputs) -> Results:
    op(inputs["A"], inputs["B"], C=None, alpha=1.0, beta=0.0, out=inputs["out"])
    return (inputs["out"],)


def _call_syrk(op: Callable[..., object], inputs: Inputs) -> Results:
    op(inputs["X"], C=None, alpha=1.0, beta=0.0, side="left", out=inputs["out"])
    return (inputs["out"],)


def _bmm(inputs: Inputs) -> Results:
    """Both triangles, in the inputs' own dtype."""
    return (torch.bmm(inputs["A"], inputs["B"], out=inputs["out"]),)


def _bmm_transposed(inputs: Inputs) -> Results:
    """Both triangles, in the inputs' own dtype."""
    return (torch.bmm(inputs["X"], inputs["X"].mT, out=inputs["out"]),)
