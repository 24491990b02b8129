"""When bases and roots are renewed, and what happens to the moments then."""

from typing import Any, Literal

from torch import Tensor

from ..ops import kron_rotate, rebase_moments_
from ._factors import eigenbasis, power_step

Side = Literal["left", "right"]

SIDES: tuple[tuple[Side, str, str], ...] = (("left", "L", "Q_L"), ("right", "R", "Q_R"))
"""Each side of a matrix with the state keys of its factor and its basis."""


def refresh_due(step: int, *, period: int, phase: int = 0, first: int = 1) -> bool:
    """Tell whether a step renews: the first one does, then those congruent to the phase.

    Args:
        step: Number of the step, counted from 1.
        period: Steps between two renewals.
        phase: Remainder modulo the period. Parameters of different phases renew on different steps, so that the
            cost of a step is flat.
        first: The first step that renews, whatever its remainder.
    """
    return step == first or (step > first and step % period == phase % period)


def refresh_bases(
    state: dict[str, Any],
    step: int,
    *,
    transport: Literal["none", "first", "both"],
    method: Literal["eigh", "qr"] = "eigh",
    descending: bool = True,
) -> int:
    """Renew the bases of a state, carry its moments into them, and return how many bases could not be renewed.

    A basis that cannot be renewed stays as it is. That of a zero factor stays too, but is no failure.

    Args:
        state: Factors, bases and moments.
        step: Number of the step; moments are zero on the first.
        transport: Which moments are carried along. "first" carries the second moments with the order of the
            eigenvectors only.
        method: "eigh", or "qr": one step of orthogonal iteration from the old basis.
        descending: Order eigenvectors by falling eigenvalue, and choose their signs to agree with the old ones.
    """
    changes: list[Tensor | None] = [None, None]
    orders: list[Tensor | None] = [None, None]
    failures = 0
    for i, (_, factor, basis) in enumerate(SIDES):
        if factor not in state:
            continue
        old = state[basis]
        if method == "qr":
            Q, orders[i] = power_step(state[factor], old)
        else:
            Q = eigenbasis(state[factor], old if descending else None, descending=descending)
        if Q is None:
            failures += bool(state[factor].any())
            continue
        changes[i], state[basis] = Q.mT @ old, Q
    if transport == "none" or step <= 1:
        return failures
    if transport == "both":
        rebase_moments_(state["exp_avg"], state["exp_avg_sq"], *changes)
    else:
        state["exp_avg"] = kron_rotate(state["exp_avg"], *changes, inverse=True)
        state["exp_avg_sq"] = _reordered(state["exp_avg_sq"], *orders)
    return failures


def _reordered(v: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    """Return (..., m, n) with rows and columns taken in new orders, (..., m) and (..., n)."""
    if rows is not None:
        v = v.gather(-2, rows[..., :, None].expand_as(v))
    return v if columns is None else v.gather(-1, columns[..., None, :].expand_as(v))
