"""One problem for each operator: inputs, and the oracle that says what they must give."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import python_ref.gram
import python_ref.kron

M, N = 96, 65


@dataclass(frozen=True)
class Problem:
    """Arguments of an operator and the oracle's function of the same arguments.

    Attributes:
        tensors: Tensor arguments in order, in the dtypes the operator is called with, on the CPU.
        scalars: Keyword arguments.
        oracle: Returns what the operator writes, in the operator's order, in float64.
        zero_dim: Keyword arguments that the operator takes as 0-d tensors and the oracle as numbers.
    """

    tensors: Mapping[str, Tensor]
    scalars: Mapping[str, Any]
    oracle: Callable[..., Any]
    zero_dim: Mapping[str, float] = field(default_factory=dict)

    def expected(self) -> tuple[Tensor, ...]:
        """Return the oracle's answer."""
        answer = self.oracle(*self.tensors.values(), **self.scalars, **self.zero_dim)
        return (answer,) if isinstance(answer, Tensor) else tuple(answer)


def problem(op: str, dtype: torch.dtype) -> Problem:
    """Return an operator's problem, the same at every call."""
    return PROBLEMS[op](dtype, torch.Generator().manual_seed(0))


def _normal(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def _orthogonal(n: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    return torch.linalg.qr(_normal((n, n), torch.float64, generator)).Q.to(dtype)


def _gram_ema(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    root = _normal((M, M), torch.float64, generator)
    tensors = {"S": (root @ root.mT / M).to(dtype), "X": _normal((M, N), dtype, generator)}
    return Problem(tensors, {"beta": 0.9, "alpha": 0.1 / N, "side": "left"}, python_ref.gram.gram_ema)


def _kron_rotate(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    tensors = {
        "G": _normal((M, N), dtype, generator),
        "Q_L": _orthogonal(M, dtype, generator),
        "Q_R": _orthogonal(N, dtype, generator),
    }
    return Problem(tensors, {"inverse": False}, python_ref.kron.rotate)


def _kron_adam(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    tensors = {
        "param": _normal((M, N), dtype, generator),
        "grad": _normal((M, N), dtype, generator),
        "exp_avg": _normal((M, N), torch.float32, generator),
        "exp_avg_sq": _normal((M, N), torch.float32, generator).square(),
        "Q_L": _orthogonal(M, torch.float32, generator),
        "Q_R": _orthogonal(N, torch.float32, generator),
    }
    scalars = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
    return Problem(tensors, scalars, python_ref.kron.adam, zero_dim={"lr": 0.1, "step": 7})


def _rebase_moments(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    tensors = {
        "exp_avg": _normal((M, N), dtype, generator),
        "exp_avg_sq": _normal((M, N), dtype, generator).square(),
        "P_L": _orthogonal(M, dtype, generator),
        "P_R": _orthogonal(N, dtype, generator),
    }
    return Problem(tensors, {}, python_ref.kron.rebase_moments)


PROBLEMS: dict[str, Callable[[torch.dtype, torch.Generator], Problem]] = {
    "gram_ema_": _gram_ema,
    "kron_rotate": _kron_rotate,
    "kron_adam_": _kron_adam,
    "rebase_moments_": _rebase_moments,
}
