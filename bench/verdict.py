"""Launches one operator of one backend, and judges what comes out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bench.case import dtype_name
from bench.suite import Problem
from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS

ERROR_BOUND = 16.0
"""Largest relative Frobenius error, in units of the result's machine epsilon."""


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
        tensors: Tensor arguments.
        zero_dim: Scalars that are tensors.
        launch: Runs the operator and returns what it wrote or returned.
    """

    tensors: dict[str, Tensor]
    zero_dim: dict[str, Tensor]
    launch: Callable[[], tuple[Tensor, ...]]


def prepare(op: str, backend: str, given: Problem, device: str, *, scalars_on: str = "cpu") -> Prepared:
    """Move a problem to a device.

    Args:
        op: Operator.
        backend: Backend that must serve it.
        given: The problem.
        device: Where tensors go.
        scalars_on: Where 0-d tensors go.
    """
    tensors = {name: tensor.to(device, copy=True) for name, tensor in given.tensors.items()}
    zero_dim = {
        name: torch.tensor(v, dtype=torch.float32, device=scalars_on) for name, v in given.zero_dim.items()
    }
    return Prepared(tensors, zero_dim, partial(_launch, op, backend, tensors, given, zero_dim))


def judge(
    op: str,
    backend: str,
    check: str,
    results: Sequence[Tensor],
    expected: Sequence[Tensor],
    dtype: torch.dtype,
) -> Result:
    """Compare results with what is expected."""
    error = max(map(_error, results, expected))
    return Result(op, backend, dtype_name(dtype), error, error <= ERROR_BOUND, check)


def _launch(
    op: str, backend: str, tensors: dict[str, Tensor], given: Problem, zero_dim: dict[str, Tensor]
) -> tuple[Tensor, ...]:
    with backends.trace() as served:
        returned = getattr(backends.get(backend), op)(*tensors.values(), **given.scalars, **zero_dim)
    assert served == {(op, backend): 1}, f"{op}: {served} ran in place of {backend}"
    if returned is None:
        return tuple(tensors[name] for name in OPERATORS[op].written)
    return (returned,) if isinstance(returned, Tensor) else tuple(returned)


def _error(result: Tensor, expected: Tensor) -> float:
    expected = expected.to("cpu", torch.float64)
    difference = torch.linalg.norm(result.cpu().to(torch.float64) - expected)
    return float(difference / torch.linalg.norm(expected) / torch.finfo(result.dtype).eps)
