"""Operators on symmetric matrices: inverse roots, polar factors, and the products underneath."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from . import checks as require
from .operator import Operator, Result, declare

PRECISIONS = ("auto", "fp32", "tf32", "fp16", "bf16")
ROOT_METHODS = ("auto", "newton_schulz", "eigh")
POLAR_METHODS = ("auto", "standard", "gram")


def _require_schedule(op: str, name: str, schedule: Sequence[float], terms: int) -> None:
    """Require a flat list of polynomials with so many coefficients each."""
    if not schedule or len(schedule) % terms or not all(map(math.isfinite, schedule)):
        raise ValueError(
            f"{op}: {name} has {len(schedule)} numbers, it must hold {terms} finite coefficients a step"
        )


def _check_root_options(
    op: str,
    p: int,
    *,
    damping: float,
    relative_damping: float,
    method: str,
    schedule: Sequence[float],
    second_stage: Sequence[float],
    precision: str,
) -> None:
    require.require_choice(op, "p", p, (1, 2, 4))
    require.require_choice(op, "method", method, ROOT_METHODS)
    require.require_choice(op, "precision", precision, PRECISIONS)
    require.require_not_negative(op, damping=damping, relative_damping=relative_damping)
    _require_schedule(op, "schedule", schedule, 2)
    _require_schedule(op, "second_stage", second_stage, 2)


def _check_inverse_root(A: Tensor, p: int, **options: Any) -> None:
    require.require_floating("inverse_root", A=A)
    require.require_square("inverse_root", A=A)
    _check_root_options("inverse_root", p, **options)


def _root_results(A: Tensor, p: int, **options: Any) -> tuple[Result, ...]:
    return Result(A.shape, A.dtype), Result(A.shape[:-2], require.compute_dtype(A))


def _check_inverse_root_foreach(
    A: Sequence[Tensor], out: Sequence[Tensor], bounds: Sequence[Tensor], p: int, **options: Any
) -> None:
    op = "inverse_root_foreach"
    require.require_equal_lengths(op, "A", len(A), out=out, bounds=bounds)
    for i, (item, root, bound) in enumerate(zip(A, out, bounds, strict=True)):
        name = f"A[{i}]"
        require.require_floating(op, **{name: item})
        require.require_square(op, **{name: item})
        require.require_dtype(op, A[0].dtype, "like A[0]", **{name: item, f"out[{i}]": root})
        require.require_dtype(op, require.compute_dtype(item), f"for {name}", **{f"bounds[{i}]": bound})
        require.require_shape(op, item.shape, f"like {name}", **{f"out[{i}]": root})
        require.require_shape(op, item.shape[:-2], f"like the batch of {name}", **{f"bounds[{i}]": bound})
        require.require_device(op, A[0].device, **{name: item, f"out[{i}]": root, f"bounds[{i}]": bound})
    _check_root_options(op, p, **options)


def _check_polar_options(
    op: str,
    *,
    coefficients: Sequence[float],
    method: str,
    restarts: Sequence[int],
    normalize: bool,
    eps: float,
) -> None:
    require.require_choice(op, "method", method, POLAR_METHODS)
    require.require_not_negative(op, eps=eps, **{f"restarts[{i}]": step for i, step in enumerate(restarts)})
    _require_schedule(op, "coefficients", coefficients, 3)


def _check_newton_schulz(X: Tensor, **options: Any) -> None:
    require.require_floating("newton_schulz", X=X)
    require.require_matrix("newton_schulz", X=X)
    _check_polar_options("newton_schulz", **options)


def _check_newton_schulz_foreach(X: Sequence[Tensor], out: Sequence[Tensor], **options: Any) -> None:
    op = "newton_schulz_foreach"
    require.require_equal_lengths(op, "X", len(X), out=out)
    for i, (item, result) in enumerate(zip(X, out, strict=True)):
        require.require_floating(op, **{f"X[{i}]": item})
        require.require_matrix(op, **{f"X[{i}]": item})
        require.require_dtype(op, X[0].dtype, "like X[0]", **{f"X[{i}]": item, f"out[{i}]": result})
        require.require_shape(op, item.shape, f"like X[{i}]", **{f"out[{i}]": result})
        require.require_device(op, X[0].device, **{f"X[{i}]": item, f"out[{i}]": result})
    _check_polar_options(op, **options)


def _check_addend(op: str, shape: tuple[int, ...], like: Tensor, C: Tensor | None, beta: float) -> None:
    require.require_floating(op, C=C)
    require.require_shape(op, shape, "like the product", C=C)
    require.require_device(op, like.device, C=C)
    if C is None and beta != 0:
        raise ValueError(f"{op}: beta is {beta} without C, it must be 0 or C must be given")


def _check_symm_mm(A: Tensor, B: Tensor, *, C: Tensor | None, alpha: float, beta: float) -> None:
    op = "symm_mm"
    require.require_floating(op, A=A, B=B)
    require.require_matrix(op, A=A, B=B)
    n, k = A.shape[-2:]
    require.require_shape(op, (*A.shape[:-2], k, n), "so that A B is square", B=B)
    require.require_dtype(op, A.dtype, "like A", B=B)
    require.require_device(op, A.device, B=B)
    _check_addend(op, (*A.shape[:-2], n, n), A, C, beta)


def _check_syrk(X: Tensor, *, C: Tensor | None, alpha: float, beta: float, side: str) -> None:
    require.require_choice("syrk", "side", side, ("left", "right"))
    require.require_floating("syrk", X=X)
    require.require_matrix("syrk", X=X)
    _check_addend("syrk", _gram_shape(X, side), X, C, beta)


def _gram_shape(X: Tensor, side: str) -> tuple[int, ...]:
    n = X.shape[-2] if side == "left" else X.shape[-1]
    return (*X.shape[:-2], n, n)


_ROOT_OPTIONS = (
    "int p, *, float damping, float relative_damping, str method, float[] schedule, float[] second_stage, "
    "str precision"
)
_POLAR_OPTIONS = "*, float[] coefficients, str method, int[] restarts, bool normalize, float eps"

inverse_root = declare(
    Operator(
        "inverse_root",
        f"Tensor A, {_ROOT_OPTIONS}",
        _check_inverse_root,
        results=_root_results,
        result_count=2,
    )
)

inverse_root_foreach = declare(
    Operator(
        "inverse_root_foreach",
        f"Tensor[] A, Tensor(a!)[] out, Tensor(b!)[] bounds, {_ROOT_OPTIONS}",
        _check_inverse_root_foreach,
    )
)

newton_schulz = declare(
    Operator(
        "newton_schulz",
        f"Tensor X, {_POLAR_OPTIONS}",
        _check_newton_schulz,
        results=lambda X, **options: (Result(X.shape, X.dtype),),
    )
)

newton_schulz_foreach = declare(
    Operator(
        "newton_schulz_foreach",
        f"Tensor[] X, Tensor(a!)[] out, {_POLAR_OPTIONS}",
        _check_newton_schulz_foreach,
    )
)

symm_mm = declare(
    Operator(
        "symm_mm",
        "Tensor A, Tensor B, *, Tensor? C, float alpha, float beta",
        _check_symm_mm,
        results=lambda A, B, **options: (Result((*A.shape[:-1], A.shape[-2]), A.dtype),),
    )
)

syrk = declare(
    Operator(
        "syrk",
        "Tensor X, *, Tensor? C, float alpha, float beta, str side",
        _check_syrk,
        results=lambda X, *, side, **options: (Result(_gram_shape(X, side), X.dtype),),
    )
)
