"""Kronecker factors."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ..ops import gram_ema_foreach_
from ._buckets import Work
from ._nonfinite import each_undone_if

Side = Literal["left", "right"]

SIDES: tuple[tuple[Side, str, str], ...] = (("left", "L", "Q_L"), ("right", "R", "Q_R"))
"""Each side of a matrix with the state keys of its factor and its basis."""


def accumulate(
    factor: Tensor, scatter: Tensor, *, beta: float, rows: int | None, found_inf: Tensor | None
) -> None:
    """Update an exponential average of second moments, in place: S ← beta·S + (1 - beta)·M.

    Args:
        factor: S, symmetric.
        scatter: Σ x xᵀ over some rows, symmetric positive semidefinite. Left out if zero or not finite.
        beta: Decay.
        rows: M is the scatter divided by this; None divides it by its trace, so that the average does not depend
            on the scale of the loss.
        found_inf: If it is not None and not zero, nothing is changed.
    """
    trace = scatter.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    usable = torch.isfinite(trace) & (trace > 0)
    if found_inf is not None:
        usable &= found_inf == 0
    share = torch.where(usable, torch.full_like(trace, 1 - beta), 0.0)
    weight = torch.where(usable, share / (trace if rows is None else rows), 0.0)
    factor.mul_(1 - share).addcmul_(torch.where(usable, scatter, 0.0), weight)


def accumulate_gradients(
    work: Sequence[Work], gradients: Sequence[Tensor], *, beta: float, normalize: bool
) -> None:
    """Feed the factors of states with G Gᵀ and GᵀG, in one call: S ← beta·S + (1 - beta)·M.

    Args:
        work: Parameters of one dtype and device; their states hold "L", "R", either or neither.
        gradients: Their gradients, (..., m, n).
        beta: Decay.
        normalize: Divide both by their trace.
    """
    rows = _normalized(gradients) if normalize else gradients
    sides: list[Side] = []
    operands: list[Tensor] = []
    factors: list[Tensor] = []
    found_inf: list[Tensor | None] = []
    for item, X in zip(work, rows, strict=True):
        for side, key, _ in SIDES:
            if key in item.state:
                sides.append(side)
                operands.append(X)
                factors.append(item.state[key])
                found_inf.append(item.found_inf)
    if factors:
        with each_undone_if(found_inf, factors) as written:
            gram_ema_foreach_(written, operands, beta=beta, alpha=1 - beta, side=sides)


def _normalized(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return matrices divided by their Frobenius norms, zero ones as they are; the same bits for any strides.

    They are divided by their largest elements first, so that no square overflows or vanishes.
    """
    matrices = [G.contiguous() for G in gradients]
    single = all(G.ndim == 2 for G in matrices)
    for measure in (_largest, _norms):
        sizes = list(measure(matrices, single))
        torch._foreach_clamp_min_(sizes, torch.finfo(matrices[0].dtype).tiny)
        matrices = list(torch._foreach_div(matrices, sizes))
    return matrices


def _largest(matrices: list[Tensor], single: bool) -> Sequence[Tensor]:
    magnitudes = torch._foreach_abs(matrices)
    if single:
        return torch._foreach_max(magnitudes)
    return [magnitude.amax((-2, -1), keepdim=True) for magnitude in magnitudes]


def _norms(matrices: list[Tensor], single: bool) -> Sequence[Tensor]:
    if single:
        return torch._foreach_norm(matrices)
    return [torch.linalg.matrix_norm(G, keepdim=True) for G in matrices]
