"""Matrices with known spectra, and every backend that can run here, for the tests of symmetric operators."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

from kpop_kernels import backends, coefficients
from kpop_kernels.backends.cpu import native
from python_ref.inverse_root import inverse_root as true_inverse_root

BACKENDS = ("composite", "cpu-baseline", "cpu-avx2", "cpu-avx512")
"""Names of backends; the C++ kernels once for each instruction set."""

UNIT = 2.0**-24
"""Unit roundoff of float32."""

SPECTRA = ("log", "spike", "two", "power")


@contextmanager
def running(name: str) -> Iterator[backends.Backend]:
    """Yield a backend of `BACKENDS`, skip the test where this processor lacks its instruction set."""
    backend, _, isa = name.partition("-")
    if not isa:
        yield backends.get(backend)
        return
    if not runs_here(isa):
        pytest.skip(f"this processor has no {isa}")
    with native.using(isa):
        assert native.kernels().isa == isa
        yield backends.get(backend)


def runs_here(isa: str) -> bool:
    """Tell whether the compiled kernels have an instruction set that this processor runs."""
    try:
        with native.using(isa):
            return True
    except ValueError:
        return False


@lru_cache(maxsize=64)
def spd(n: int, kappa: float, spectrum: str = "log", batch: int = 2, seed: int = 0) -> Tensor:
    """Return float32 matrices with condition number kappa in random bases, (batch, n, n)."""
    generator = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(batch, n, n, dtype=torch.float64, generator=generator)).Q
    ranks = torch.arange(n, dtype=torch.float64)
    eigvals = {
        "log": kappa ** (-ranks / max(n - 1, 1)),
        "spike": torch.where(ranks == 0, 1.0, 1 / kappa).double(),
        "two": torch.where(ranks < (n + 1) // 2, 1.0, 1 / kappa).double(),
        "power": (1 + ranks) ** (-math.log(kappa) / math.log(max(n, 2))),
    }[spectrum]
    A = (Q * eigvals) @ Q.mT
    return ((A + A.mT) / 2).float()


@lru_cache(maxsize=256)
def truth(n: int, kappa: float, spectrum: str, p: int) -> Tensor:
    """Return the float64 roots of `spd`."""
    return true_inverse_root(spd(n, kappa, spectrum), p)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return the largest relative Frobenius error of a batch."""
    expected = expected.double()
    error = torch.linalg.matrix_norm(actual.double() - expected) / torch.linalg.matrix_norm(expected)
    return error.max().item()


def root_options(**changed: Any) -> dict[str, Any]:
    """Return the operator's arguments behind ``inverse_root(A, p)``, some of them changed."""
    schedule = changed.pop("schedule", "cushioned")
    return {
        "damping": 0.0,
        "relative_damping": 0.0,
        "method": "newton_schulz",
        "schedule": [c for step in coefficients.inverse_root_schedule(schedule) for c in step],
        "second_stage": [c for step in coefficients.second_stage() for c in step],
        "precision": "auto",
    } | changed


def in_guard_band(shape: tuple[int, ...], run: Callable[[Tensor], object]) -> Tensor:
    """Let ``run`` write a tensor that lies between NaNs, and return it once the NaNs are still there."""
    guard = 64
    count = math.prod(shape)
    memory = torch.full((count + 2 * guard,), torch.nan)
    out = memory[guard : guard + count].view(shape)
    run(out)
    assert memory[:guard].isnan().all() and memory[guard + count :].isnan().all()
    return out
