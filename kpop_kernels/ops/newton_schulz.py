"""Orthogonal polar factors by Newton–Schulz: what Muon calls orthogonalization."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .. import coefficients as schedules
from ._arguments import constant_when_compiled

Coefficients = Literal["polar_express", "muon", "cans"] | Sequence[tuple[float, float, float]]
Method = Literal["auto", "standard", "gram"]


def newton_schulz(
    X: Tensor,  # (..., m, n)
    *,
    steps: int = 5,
    coefficients: Coefficients = "polar_express",
    method: Method = "auto",
    restarts: Sequence[int] = (2,),
    normalize: bool = True,
    out: Tensor | None = None,
) -> Tensor:  # (..., m, n)
    """Return an approximation of the orthogonal polar factor U Vᵀ of X = U diag(σ) Vᵀ.

    Started at X/‖X‖_F, each step applies an odd polynomial to the singular values:

        A = XXᵀ;   X ← aX + (bA + cA²)X            (standard)
        R = XXᵀ;   T = aI + bR + cR²;   Q ← QT;   R ← TRT;   at the end X ← QX    (gram)

    The Gram form works on the short side alone. It loses small singular values in R, so it starts anew from
    X ← QX before the steps in ``restarts``.

    Args:
        X: Matrices; float32, bfloat16, float16 (computed in float32, but see Numerics) or float64, any
            strides. Not modified.
        steps: Number of steps; ignored when a sequence of coefficients is given.
        coefficients: "polar_express" (σ from 1e-3·‖X‖_F end in 0.84 … 1.13 after 5 steps, in 1 ± 1e-6 after
            8), "cans" (0.88 … 1.12), "muon" (0.47 … 1.21 however many steps), or (a, b, c) for each step.
        method: "standard", "gram", or the one with fewer operations: gram where one side is at least twice
            the other.
        restarts: Steps, counted from 0, before which the Gram form restarts.
        normalize: Divide by the Frobenius norm first. Without it, singular values must be at most 1.
        out: Where the result goes: shape, dtype and device of X, no memory in common with X.

    Returns:
        A new tensor of X's shape and dtype, or ``out``. Zero gives zero.

    Raises:
        ValueError: X has fewer than two dimensions, an option is not one of the listed, ``out`` does not fit
            or shares memory with X, or X requires grad in grad mode.
        TypeError: X is not floating point.

    Numerics:
        float32, relative Frobenius error against the same map of singular values in float64: 2e-5 for
        Gaussian matrices; 2e-3 in the Gram form with its restart for a matrix of rank 4 plus 1e-4 noise.
        bfloat16 by Triton, in products of float16 with a scale: 3e-3, in the Gram form 1e-2, for Gaussian
        matrices; small singular values lose up to 0.2 of theirs. A NaN or Inf poisons its own matrix only.
        Norms from 1e-30 to 1e30 make no difference.

    Source:
        Jordan et al., Muon (2024); Amsel et al., The Polar Express (2025); Gram form: Dao et al., Gram
        Newton–Schulz (2025). Reference: python_ref/newton_schulz.py.
    """
    options = _options(steps, coefficients, method, restarts, normalize, 0.0)
    if out is None:
        return torch.ops.kpop.newton_schulz(X, **options)
    torch.ops.kpop.newton_schulz.out(X, **options, out=out)
    return out


def newton_schulz_foreach(
    X: Sequence[Tensor],  # each (..., m, n)
    *,
    steps: int = 5,
    coefficients: Coefficients = "polar_express",
    method: Method = "auto",
    restarts: Sequence[int] = (2,),
    normalize: bool = True,
    out: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """Return the polar factors of a list of matrices or batches of mixed shapes, in one call.

    Args:
        X: Tensors of one dtype and device; see `newton_schulz`.
        steps: See `newton_schulz`.
        coefficients: See `newton_schulz`.
        method: See `newton_schulz`.
        restarts: See `newton_schulz`.
        normalize: See `newton_schulz`.
        out: Where the results go, one tensor for each of X.

    Returns:
        A list of new tensors, or ``out`` as a list: the values of `newton_schulz` on each tensor.

    Raises:
        ValueError: See `newton_schulz`; or the lists differ in length, or devices are mixed.
        TypeError: A tensor is not floating point, or dtypes are mixed.
    """
    results = (
        [torch.empty_like(item, memory_format=torch.contiguous_format) for item in X] if out is None else out
    )
    results = list(results)
    if len(X):
        options = _options(steps, coefficients, method, restarts, normalize, 0.0)
        torch.ops.kpop.newton_schulz_foreach(list(X), results, **options)
    return results


def zeropower_via_newtonschulz5(
    G: Tensor,  # (..., m, n)
    steps: int = 5,
    eps: float = 1e-7,
) -> Tensor:  # (..., m, n)
    """Return Muon's orthogonalization of G: its own constant coefficients, started at G/(‖G‖_F + eps).

    Args:
        G: Matrices, any floating dtype. Not modified.
        steps: Number of steps.
        eps: Added to the norm.

    Returns:
        A new tensor of G's shape and dtype, with singular values between 0.47 and 1.21 where G's were at
        least 1e-3·‖G‖_F.

    Raises:
        ValueError: G has fewer than two dimensions or requires grad in grad mode.
        TypeError: G is not floating point.

    Source:
        Jordan et al., Muon (2024).
    """
    return torch.ops.kpop.newton_schulz(G, **_options(steps, "muon", "standard", (), True, eps))


def _options(
    steps: int,
    coefficients: Coefficients,
    method: str,
    restarts: Sequence[int],
    normalize: bool,
    eps: float,
) -> dict[str, Any]:
    return {
        "coefficients": _flat(coefficients, steps),
        "method": method,
        "restarts": list(restarts),
        "normalize": normalize,
        "eps": float(eps),
    }


@constant_when_compiled
def _flat(coefficients: Coefficients, steps: int) -> list[float]:
    """Return a schedule as one list of numbers; a compiled graph takes it as a constant."""
    named = isinstance(coefficients, str)
    polynomials = schedules.polar_schedule(coefficients, steps) if named else coefficients
    return [float(c) for polynomial in polynomials for c in polynomial]
