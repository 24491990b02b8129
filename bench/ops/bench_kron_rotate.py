"""Two-sided rotations Q_Lᵀ G Q_R: two products, or one where a side has no basis."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import python_ref.kron
from bench.case import Case, Inputs, Results, Variant, compiled, normal, orthogonal, ours
from kpop_kernels.backends.composite.kron import kron_rotate

OPS = ("kron_rotate",)
QUICK = ((96, 96), (256, 1024), (768, 768))
FULL = (*QUICK, (96, 256), (768, 3072), (2048, 2048))


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield m×n from the demo's layers to those of a small language model."""
    for dtype in (torch.float32, torch.bfloat16):
        for m, n in QUICK if quick else FULL:
            yield case(m, n, device, dtype=dtype)


def case(m: int, n: int, device: str, *, batch: int = 1, dtype: torch.dtype = torch.float32) -> Case:
    """Return the rotation of `batch` m×n matrices, each with bases of its own."""

    def make(generator: torch.Generator) -> Inputs:
        return {
            "G": normal((batch, m, n), dtype, generator),
            "Q_L": orthogonal(m, dtype, generator).repeat(batch, 1, 1),
            "Q_R": orthogonal(n, dtype, generator).repeat(batch, 1, 1),
            "out": torch.empty(batch, m, n, dtype=dtype),
        }

    return Case(
        op="kron_rotate",
        shape=(m, n) if batch == 1 else (batch, m, n),
        dtype=dtype,
        bytes=batch * dtype.itemsize * (2 * m * n + m * m + n * n),
        flops=batch * 2 * m * n * (m + n),
        make=make,
        oracle=_oracle,
        bound=max(2 * torch.finfo(dtype).eps, 1e-5),
        variants=(
            *ours("kron_rotate", _call, device, dtype),
            compiled(kron_rotate, _call),
            Variant("torch.matmul", _matmul),
        ),
    )


def _call(op: Callable[..., object], inputs: Inputs) -> Results:
    op(inputs["G"], inputs["Q_L"], inputs["Q_R"], inverse=False, out=inputs["out"])
    return (inputs["out"],)


def _oracle(inputs: Inputs) -> tuple[Tensor, ...]:
    return (python_ref.kron.rotate(inputs["G"], inputs["Q_L"], inputs["Q_R"]),)


def _matmul(inputs: Inputs) -> Results:
    """In the inputs' own dtype, rounded between the products."""
    return (inputs["Q_L"].mT @ inputs["G"] @ inputs["Q_R"],)
