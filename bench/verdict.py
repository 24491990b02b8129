"""Launches one operator of one backend, and judges what comes out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.case import dtype_name
from bench.problem import Problem, flat
from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS


@dataclass(frozen=True)
class Result:
    """How one operator of one backend did in one dtype.

    Attributes:
        op: Operator.
        backend: Backend.
        dtype: Element type.
        error: Relative Frobenius error in units of the result's machine epsilon.
        passed: Whether that is within the bound.
        check: What was tried.
    """

    op: str
    backend: str
    dtype: str
    error: float
    passed: bool
    check: str = "values"


@dataclass(frozen=True)
class Prepared:
    """An operator of a backend with its arguments on a device.

    Attributes:
        tensors: Tensor arguments; lists for operators on lists.
        zero_dim: Scalars that are tensors; lists for operators on lists.
        launch: Runs the operator and returns what it returned and then what it wrote.
    """

    tensors: dict[str, Any]
    zero_dim: dict[str, Any]
    launch: Callable[[], list[Tensor]]


def prepare(op: str, backend: str, given: Problem, device: str, *, scalars_on: str = "cpu") -> Prepared:
    """Move a problem to a device.

    Args:
        op: Operator.
        backend: Backend that must serve it.
        given: The problem.
        device: Where tensors go.
        scalars_on: Where 0-d tensors go.
    """
    tensors = {name: _copied(tensor, device) for name, tensor in given.tensors.items()}
    zero_dim = {name: _zero_dim(value, scalars_on) for name, value in given.zero_dim.items()}
    return Prepared(tensors, zero_dim, partial(_launch, op, backend, tensors, given, zero_dim))


def judge(
    op: str,
    backend: str,
    check: str,
    results: Sequence[Tensor],
    expected: Sequence[Tensor],
    dtype: torch.dtype,
    bound: float,
) -> Result:
    """Compare results with what is expected; `bound` is in epsilons."""
    error = max(_error(result, right) for result, right in zip(results, expected, strict=True))
    return Result(op, backend, dtype_name(dtype), error, error <= bound, check)


def _launch(
    op: str, backend: str, tensors: dict[str, Any], given: Problem, zero_dim: dict[str, Any]
) -> list[Tensor]:
    with backends.trace() as served:
        returned = getattr(backends.get(backend), op)(*tensors.values(), **given.scalars, **zero_dim)
    assert served == {(op, backend): 1}, f"{op}: {served} ran in place of {backend}"
    written = [tensors[name] for name in OPERATORS[op].written if name in tensors]
    return flat([written if returned is None else [returned, written]])


def _zero_dim(value: float | list[float], device: str) -> Any:
    if isinstance(value, list):
        return [_zero_dim(item, device) for item in value]
    return torch.tensor(value, dtype=torch.float32, device=device)


def _copied(value: Tensor | list[Tensor], device: str) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, copy=True)
    return [_copied(item, device) for item in value]


def _error(result: Tensor, expected: Tensor) -> float:
    """Return the relative error in epsilons; integers are right or wrong."""
    expected = expected.cpu()
    if not result.dtype.is_floating_point:
        return 0.0 if torch.equal(result.cpu(), expected) else float("inf")
    expected = expected.to(torch.float64)
    difference = torch.linalg.norm(result.cpu().to(torch.float64) - expected)
    return float(difference / torch.linalg.norm(expected) / torch.finfo(result.dtype).eps)
