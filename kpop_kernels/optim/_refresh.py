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
            Where second moments stay at their places, a step of QR leaves eigenvectors there too.
    """
    # A step of QR leaves columns at their places, with the second moments that belong to them.
    sort = descending and not (method == "qr" and transport == "first")
    changes: list[Tensor | None] = [None, None]
    failures = []
    for i, (_, factor, basis) in enumerate(SIDES):
        if factor not in state:
            continue
        old = state[basis]
        Q, _, changes[i], failed = refresh_eigenbasis(
            state[factor], old if descending else None, method=method, sort=sort
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
