"""When bases and roots are renewed, and what happens to the moments then."""

from typing import Any, Literal

import torch
from torch import Tensor

from ..ops import kron_rotate, rebase_moments_, refresh_eigenbasis
from ._factors import SIDES


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
) -> list[Tensor]:
    """Renew the bases of a state, carry its moments into them, and return for each which could not be renewed.

    A basis that cannot be renewed stays as it is. That of a zero factor stays too, but is no failure.

    Args:
        state: Factors, bases and moments.
        step: Number of the step; moments are zero on the first.
        transport: Which moments are carried along. "first" carries the second moments with the order of the
            eigenvectors only.
        method: "eigh", or "qr": one step of orthogonal iteration from the old basis.
        descending: Order eigenvectors by falling eigenvalue, and choose their signs to agree with the old ones.
    """
    ordered = method == "qr" and transport == "first"
    if ordered:
        _order_by_eigenvalues(state)
    changes: list[Tensor | None] = [None, None]
    failures = []
    for i, (_, factor, basis) in enumerate(SIDES):
        if factor not in state:
            continue
        old = state[basis]
        Q, _, changes[i], failed = refresh_eigenbasis(
            state[factor], old if descending else None, method=method, sort=descending and not ordered
        )
        state[basis] = Q if descending else torch.where(failed[..., None, None], old, Q)
        failures.append(failed)
    if transport == "none" or step <= 1:
        return failures
    if transport == "both":
        rebase_moments_(state["exp_avg"], state["exp_avg_sq"], *changes)
    else:
        state["exp_avg"] = kron_rotate(state["exp_avg"], *changes, inverse=True)
    return failures


def _order_by_eigenvalues(state: dict[str, Any]) -> None:
    """Order the columns q of bases by falling qᵀSq, and the moments with them; a step of QR keeps that order."""
    orders: list[Tensor | None] = [None, None]
    for i, (_, factor, basis) in enumerate(SIDES):
        if factor not in state:
            continue
        S, Q = state[factor], state[basis]
        order = (Q * (S @ Q)).sum(-2).argsort(dim=-1, descending=True, stable=True)
        finite = S.isfinite().flatten(-2).all(-1, keepdim=True)
        orders[i] = torch.where(finite, order, torch.arange(S.shape[-1], device=S.device))
        state[basis] = _reordered(Q, None, orders[i])
    for moment in ("exp_avg", "exp_avg_sq"):
        state[moment] = _reordered(state[moment], *orders)


def _reordered(v: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    """Return (..., m, n) with rows and columns taken in new orders, (..., m) and (..., n)."""
    if rows is not None:
        v = v.gather(-2, rows[..., :, None].expand_as(v))
    return v if columns is None else v.gather(-1, columns[..., None, :].expand_as(v))
