"""Covariance updates: one triangle of S ← βS + αXXᵀ, S and X once through memory."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import python_ref.gram
from bench.case import Case, Inputs, Results, Variant, compiled, normal, ours
from kpop_kernels.backends.composite.gram import gram_ema_

OPS = ("gram_ema_",)
SCALARS: dict[str, Any] = {"beta": 0.95, "alpha": 0.05, "side": "left"}
QUICK = ((64, 256), (512, 1024), (1024, 1024))
FULL = (*QUICK, (96, 1024), (768, 4096), (2048, 2048), (3072, 4096))


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield n×k for factors from small layers to long ones."""
    for dtype in (torch.float32, torch.bfloat16):
        for n, k in QUICK if quick else FULL:
            yield case(n, k, device, dtype=dtype)


def case(n: int, k: int, device: str, *, batch: int = 1, dtype: torch.dtype = torch.float32) -> Case:
    """Return the update of `batch` n×n factors, kept in float32, with n×k matrices."""

    def make(generator: torch.Generator) -> Inputs:
        X = normal((batch, n, k), dtype, generator)
        return {"S": torch.eye(n).repeat(batch, 1, 1), "X": X / k**0.5}

    return Case(
        op="gram_ema_",
        shape=(n, k) if batch == 1 else (batch, n, k),
        dtype=dtype,
        bytes=batch * (2 * 4 * n * n + dtype.itemsize * n * k),
        flops=batch * n * (n + 1) * k,
        make=make,
        oracle=_oracle,
        bound=1e-5,
        variants=(
            *ours("gram_ema_", _call, device, torch.float32),
            compiled(gram_ema_, _call),
            Variant("torch.baddbmm", _baddbmm),
        ),
    )


def _call(op: Callable[..., None], inputs: Inputs) -> Results:
    op(inputs["S"], inputs["X"], **SCALARS)
    return (inputs["S"],)


def _oracle(inputs: Inputs) -> tuple[Tensor, ...]:
    return (python_ref.gram.gram_ema(inputs["S"], inputs["X"], **SCALARS),)


def _baddbmm(inputs: Inputs) -> Results:
    """Both triangles, and not exactly symmetric."""
    S, X = inputs["S"], inputs["X"].to(inputs["S"].dtype)
    torch.baddbmm(S, X, X.mT, beta=SCALARS["beta"], alpha=SCALARS["alpha"], out=S)
    return (S,)
