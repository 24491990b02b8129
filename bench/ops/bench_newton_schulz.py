"""Polar factors by five steps of Newton–Schulz: what Muon does to every gradient."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import python_ref.newton_schulz
from bench import peers
from bench.case import Case, Inputs, Results, Variant, normal, ours
from bench.suite import POLAR, POLAR_STEPS

OPS = ("newton_schulz", "newton_schulz_foreach")
QUICK = ((96, 96), (96, 384), (768, 768))
FULL = (*QUICK, (64, 64), (256, 256), (256, 1024), (768, 3072), (2048, 2048))
MIXED = ((64, 64), (64, 256), (256, 64), (96, 96), (96, 384), (384, 96))
"""Shapes of a list, such as the layers of one small model."""

BOUND = 5e-4
"""In float32; the map is steep for the small singular values of square matrices."""

HALF_BOUND = 5e-2
"""With products of rounded operands, whose errors each step multiplies."""


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield m×n from the layers of the demo to those of a small language model, and a list."""
    for dtype in (torch.float32, torch.bfloat16):
        for m, n in QUICK if quick else FULL:
            yield case(m, n, device, dtype=dtype)
    yield foreach_case(MIXED, device)


def case(m: int, n: int, device: str, *, batch: int = 1, dtype: torch.dtype = torch.float32) -> Case:
    """Return the polar factors of `batch` m×n matrices."""

    def make(generator: torch.Generator) -> Inputs:
        X = normal((batch, m, n), dtype, generator)
        return {"X": X, "out": torch.empty_like(X)}

    return Case(
        op="newton_schulz",
        shape=(m, n) if batch == 1 else (batch, m, n),
        dtype=dtype,
        bytes=batch * 2 * dtype.itemsize * m * n,
        flops=batch * flops(m, n),
        make=make,
        oracle=lambda inputs: (_oracle(inputs["X"]),),
        bound=max(BOUND, 2 * torch.finfo(dtype).eps),
        variants=(
            *ours("newton_schulz", _call, device, dtype),
            Variant("torch.baddbmm", _baddbmm, bound=BOUND if dtype == torch.float32 else HALF_BOUND),
            *_gram_newton_schulz(device),
        ),
        left_out={} if device == "cuda" else {"gram_newton_schulz": "its float16 products are for GPUs"},
    )


def foreach_case(shapes: tuple[tuple[int, int], ...], device: str) -> Case:
    """Return the polar factors of a list of matrices in one call."""

    def make(generator: torch.Generator) -> Inputs:
        X = {f"X{i}": normal(shape, torch.float32, generator) for i, shape in enumerate(shapes)}
        return X | {f"out{i}": torch.empty(shape) for i, shape in enumerate(shapes)}

    def listed(inputs: Inputs, name: str) -> list[Tensor]:
        return [inputs[f"{name}{i}"] for i in range(len(shapes))]

    def call(op: Callable[..., object], inputs: Inputs) -> Results:
        out = listed(inputs, "out")
        op(listed(inputs, "X"), out, **POLAR)
        return out

    return Case(
        op="newton_schulz_foreach",
        shape=tuple(m for m, _ in shapes),
        dtype=torch.float32,
        bytes=sum(2 * 4 * m * n for m, n in shapes),
        flops=sum(flops(m, n) for m, n in shapes),
        make=make,
        oracle=lambda inputs: [_oracle(X) for X in listed(inputs, "X")],
        bound=BOUND,
        variants=(
            *ours("newton_schulz_foreach", call, device, torch.float32),
            Variant("torch.baddbmm", lambda inputs: [_plain(X[None])[0] for X in listed(inputs, "X")]),
        ),
        setting="mixed shapes",
    )


def flops(m: int, n: int) -> int:
    """Return the operations of the form that needs fewer; symmetric products count one triangle.

    Standard: each of 5 steps takes XXᵀ, its square, and a full product with X. Gram with its restart: 14 products
    of the short side alone, all symmetric because its factors commute; XXᵀ and QX twice.
    """
    short, long = sorted((m, n))
    triangle = short * (short + 1)
    standard = len(POLAR_STEPS) * (triangle * long + triangle * short + 2 * short * short * long)
    gram = 14 * triangle * short + 2 * (triangle * long + 2 * short * short * long)
    return min(standard, gram)


def _call(op: Callable[..., object], inputs: Inputs) -> Results:
    op(inputs["X"], **POLAR, out=inputs["out"])
    return (inputs["out"],)


def _oracle(X: Tensor) -> Tensor:
    return python_ref.newton_schulz.map_singular_values(X, POLAR_STEPS)


def _baddbmm(inputs: Inputs) -> Results:
    """The standard form by full products, in the inputs' own dtype."""
    return (_plain(inputs["X"]),)


def _plain(X: Tensor) -> Tensor:
    tall = X.shape[-2] > X.shape[-1]
    X = X.mT if tall else X
    X = X / torch.linalg.matrix_norm(X, keepdim=True)
    for a, b, c in POLAR_STEPS:
        A = torch.bmm(X, X.mT)
        X = torch.baddbmm(X, torch.baddbmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return X.mT if tall else X


def _gram_newton_schulz(device: str) -> Iterator[Variant]:
    if device != "cuda" or "gram_newton_schulz" not in peers.installed():
        return

    def setup(inputs: Inputs) -> Any:
        steps = [list(step) for step in POLAR_STEPS]
        return peers.load("gram_newton_schulz").GramNewtonSchulz(ns_coefficients=steps), inputs["X"]

    def run(state: Any) -> Results:
        orthogonalize, X = state
        return (orthogonalize(X),)

    yield Variant("gram_newton_schulz", run, setup=setup, bound=HALF_BOUND)
