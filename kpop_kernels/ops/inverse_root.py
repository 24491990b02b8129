"""Inverse roots of symmetric positive definite matrices."""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .. import coefficients
from .._schema import compute_dtype
from ._arguments import constant_when_compiled

Schedule = Literal["cushioned", "cans"] | Sequence[tuple[float, float]]
Precision = Literal["auto", "fp32", "tf32", "fp16", "bf16"]
Method = Literal["auto", "newton_schulz", "eigh"]

# Products of so few digits turn the rounding of a singular matrix into negative eigenvalues; these shifts,
# relative to the bound of the spectrum, are the smallest that keep the iteration from following them.
DAMPING_OF_PRECISION = {"tf32": 1e-5, "fp16": 1e-5, "bf16": 1e-4}


class InverseRootInfo(NamedTuple):
    """What became of each matrix, on the device of the matrices.

    Attributes:
        finite: False where the root holds NaN or Inf, or entries beyond what a positive definite matrix can
            give: the input was not finite or had a clearly negative eigenvalue.
        residual: Root mean square of the eigenvalues of A·X^p - 1. It grows with the condition number even
            for a good root, because errors in the smallest eigenvalues of X are multiplied by the largest of
            A.
        bound: Upper bound of the spectrum that was used, damping included.
    """

    finite: Tensor
    residual: Tensor
    bound: Tensor


def inverse_root(
    A: Tensor,  # (..., n, n)
    p: Literal[1, 2, 4] = 2,
    *,
    damping: float = 0.0,
    relative_damping: float | None = None,
    method: Method = "auto",
    schedule: Schedule = "cushioned",
    precision: Precision = "auto",
    check: bool = False,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, InverseRootInfo]:  # (..., n, n)
    """Return (A + δI)^(-1/p) of symmetric positive semidefinite matrices, symmetric bit for bit.

    With δ = damping + relative_damping·L(A), a strict upper bound L of the spectrum, Y₀ = (A + δI)/L, Z₀ = I,
    the coupled Newton–Schulz iteration is

        P = ZY;   Y ← aY + bYP;   Z ← aZ + bPZ,

    with minimax coefficients (a, b) for each step; then Z → Y₀^(-1/2). p = 1 squares the result, p = 4 takes
    its square root by a second, shorter iteration.

    Args:
        A: float32, bfloat16, float16 (computed in float32) or float64, any strides. (A + Aᵀ)/2 is used. Not
            modified.
        p: Root: 1, 2 or 4.
        damping: Added to the diagonal, in the units of A.
        relative_damping: Added to the diagonal, in units of the bound L(A), which is 1 to 7 times the largest
            eigenvalue. None: 0 for "auto" and "fp32", 1e-5 for "tf32" and "fp16", 1e-4 for "bf16".
        method: "newton_schulz", "eigh", or whichever was measured to be faster for this size (on the CPU also
            for the number of steps that the matrix takes).
        schedule: "cushioned" (10 steps, serves λ_min/L ≥ 7e-7, tolerates a bound that is 10 % too low; the
            CPU kernels take 5 to 8 steps of equal error where they prove that λ_min/L is large enough),
            "cans" (10 steps, 3 times more exact in float32, for n ≥ 64 in 16-bit products), or (a, b) for
            each step, as `kpop_kernels.coefficients.schedule` computes them.
        precision: Least precision of the products' operands; accumulation is always float32. A backend
            without such units uses the next better one. "auto" is float32 where that is not slow; on a GPU it is
            float32 by three products of tf32. Narrower products of Y and Z are averaged with their transposes,
            which keeps their digits at every condition number but takes twice the operations of halves.
        check: Also return an `InverseRootInfo`, at the cost of two more products.
        out: Where the result goes: shape, dtype and device of A, no memory in common with A.

    Returns:
        A new tensor of A's shape and dtype, or ``out``; with ``check`` a pair of it and the information.

    Raises:
        ValueError: A is not square, an option is not one of the listed, damping is negative, ``out`` does not
            fit or shares memory with A, or A requires grad in grad mode.
        TypeError: A is not floating point.

    Numerics:
        Relative Frobenius error against float64, by Newton–Schulz: float32 2e-4·max(1, κ/1e4) ("cans": 5e-5
        for κ ≤ 1e3), tf32 and fp16 8e-3 for κ ≤ 1e3 and 3e-2 for κ ≤ 1e5, bf16 5e-2 for κ ≤ 1e3; four times
        that where half of the spectrum sits at λ_min. By eigh in float32: as by Newton–Schulz, and 4·κ·2⁻²⁴
        where that is less. Up to n = 8 all is in float64, on Apple GPUs in pairs of float32. Eigenvalues
        below 1e-7·L count as about that large. A zero matrix without damping gives zero. A NaN or Inf poisons
        its own matrix only, and one without a positive bound is NaN. Norms from 1e-30 to 1e30 make no difference.

    Source:
        Higham, Functions of Matrices (2008), ch. 6; Online KL Shampoo; schedules: see
        `kpop_kernels.coefficients`. Reference: python_ref/inverse_root.py.
    """
    options = _options(schedule, precision, damping, relative_damping, method)
    if out is None:
        root, bound = torch.ops.kpop.inverse_root(A, p, **options)
    else:
        root, bound = out, torch.empty(A.shape[:-2], dtype=compute_dtype(A), device=A.device)
        torch.ops.kpop.inverse_root.out(A, p, **options, out0=root, out1=bound)
    return (root, _info(A, root, bound, p, options)) if check else root


def inverse_root_foreach(
    A: Sequence[Tensor],  # each (..., n, n)
    p: Literal[1, 2, 4] = 2,
    *,
    damping: float = 0.0,
    relative_damping: float | None = None,
    method: Method = "auto",
    schedule: Schedule = "cushioned",
    precision: Precision = "auto",
    check: bool = False,
    out: Sequence[Tensor] | None = None,
) -> list[Tensor] | tuple[list[Tensor], list[InverseRootInfo]]:
    """Return the inverse roots of a list of matrices or batches of mixed sizes, in one call.

    Args:
        A: Tensors of one dtype and device; see `inverse_root`.
        p: Root: 1, 2 or 4.
        damping: See `inverse_root`.
        relative_damping: See `inverse_root`.
        method: See `inverse_root`.
        schedule: See `inverse_root`.
        precision: See `inverse_root`.
        check: Also return one `InverseRootInfo` for each tensor.
        out: Where the results go, one tensor for each of A.

    Returns:
        A list of new tensors, or ``out`` as a list; with ``check`` a pair of it and a list of information.
        The values are those of `inverse_root` on each tensor.

    Raises:
        ValueError: See `inverse_root`; or the lists differ in length, or devices are mixed.
        TypeError: A tensor is not floating point, or dtypes are mixed.
    """
    roots = (
        [torch.empty_like(item, memory_format=torch.contiguous_format) for item in A] if out is None else out
    )
    roots = list(roots)
    bounds = [torch.empty(item.shape[:-2], dtype=compute_dtype(item), device=item.device) for item in A]
    options = _options(schedule, precision, damping, relative_damping, method)
    if len(A):
        torch.ops.kpop.inverse_root_foreach(list(A), roots, bounds, p, **options)
    if not check:
        return roots
    return roots, [_info(*item, p, options) for item in zip(A, roots, bounds, strict=True)]


def _options(
    schedule: Schedule, precision: str, damping: float, relative_damping: float | None, method: str
) -> dict[str, Any]:
    if relative_damping is None:
        relative_damping = DAMPING_OF_PRECISION.get(precision, 0.0)
    return {
        "damping": float(damping),
        "relative_damping": float(relative_damping),
        "method": method,
        "schedule": _flat(schedule),
        "second_stage": _flat("second_stage"),
        "precision": precision,
    }


@constant_when_compiled
def _flat(schedule: Schedule | Literal["second_stage"]) -> list[float]:
    """Return a schedule as one list of numbers; a compiled graph takes it as a constant."""
    polynomials: Sequence[Sequence[float]]
    if schedule == "second_stage":
        polynomials = coefficients.second_stage()
    elif isinstance(schedule, str):
        polynomials = coefficients.inverse_root_schedule(schedule)
    else:
        polynomials = schedule
    return [float(c) for polynomial in polynomials for c in polynomial]


def _info(A: Tensor, root: Tensor, bound: Tensor, p: int, options: dict[str, Any]) -> InverseRootInfo:
    """Judge a root on the device: the largest entry that its schedule can give, and the residual of A X^p."""
    X, S = root.to(bound.dtype), A.to(bound.dtype)
    largest = math.prod(options["schedule"][::2])
    cap = 1.1 * max(largest, torch.finfo(bound.dtype).eps ** -0.5) ** (2 / p)
    entries = X.abs().amax((-2, -1)) if X.shape[-1] else bound
    finite = X.isfinite().all(-1).all(-1) & (entries * bound ** (1 / p) <= cap)
    relative = options["relative_damping"]
    delta = options["damping"] + (bound - options["damping"]) * (relative / (1 + relative))
    identity = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
    S = (S + S.mT) / 2 + delta[..., None, None] * identity
    half = X @ X if p == 4 else X
    error = (X @ S if p == 1 else half @ S @ half) - identity
    residual = torch.linalg.vector_norm(error, dim=(-2, -1)) / math.sqrt(max(S.shape[-1], 1))
    return InverseRootInfo(finite, residual, bound)
