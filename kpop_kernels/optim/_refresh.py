"""When bases and roots are renewed, and what happens to the moments then."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..ops import Eigenbasis, kron_rotate, rebase_moments_, refresh_eigenbasis
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


class Renewal(NamedTuple):
    """How bases are renewed on a step; see `refresh_bases`."""

    step: int
    transport: Literal["none", "first", "both"]
    method: Literal["eigh", "qr"]
    descending: bool = True


def refresh_together(due: Iterable[tuple[Renewal, dict[str, Any]]]) -> Iterator[Tensor]:
    """Renew the bases of states, those that are renewed alike in one call, and yield what could not be renewed."""
    alike: dict[Renewal, list[dict[str, Any]]] = {}
    for renewal, state in due:
        alike.setdefault(renewal, []).append(state)
    for renewal, states in alike.items():
        yield from refresh_bases(states, **renewal._asdict())


def refresh_bases(
    states: Sequence[dict[str, Any]],
    step: int,
    *,
    transport: Literal["none", "first", "both"],
    method: Literal["eigh", "qr"] = "eigh",
    descending: bool = True,
) -> list[Tensor]:
    """Renew the bases of states, carry their moments into them, and return for each which could not be renewed.

    A basis that cannot be renewed stays as it is. That of a zero factor stays too, but is no failure.

    Args:
        states: Factors, bases and moments.
        step: Number of the step; moments are zero on the first.
        transport: Which moments are carried along. "first" carries the second moments with the order of the
            eigenvectors only.
        method: "eigh", or "qr": one step of orthogonal iteration from the old basis.
        descending: Order eigenvectors by falling eigenvalue, and choose their signs to agree with the old ones.
            Where second moments stay at their places, a step of QR leaves eigenvectors there too.
    """
    # A step of QR leaves columns at their places, with the second moments that belong to them.
    sort = descending and not (method == "qr" and transport == "first")
    sides = [
        (state, i, factor, basis)
        for state in states
        for i, (_, factor, basis) in enumerate(SIDES)
        if factor in state
    ]
    found = _renewed(
        [state[factor] for state, _, factor, _ in sides],
        [state[basis] if descending else None for state, _, _, basis in sides],
        method=method,
        sort=sort,
    )
    changes: dict[int, list[Tensor | None]] = {id(state): [None, None] for state in states}
    for (state, i, _, basis), (Q, _, P, failed) in zip(sides, found, strict=True):
        changes[id(state)][i] = P
        state[basis] = Q if descending else torch.where(failed[..., None, None], state[basis], Q)
    if transport != "none" and step > 1:
        for state in states:
            if transport == "both":
                rebase_moments_(state["exp_avg"], state["exp_avg_sq"], *changes[id(state)])
            else:
                state["exp_avg"] = kron_rotate(state["exp_avg"], *changes[id(state)], inverse=True)
    return [renewal.failed for renewal in found]


def _renewed(
    factors: Sequence[Tensor], old: Sequence[Tensor | None], *, method: Literal["eigh", "qr"], sort: bool
) -> list[Eigenbasis]:
    """Renew bases, those of one order in one call: a device decomposes many matrices hardly slower than one."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for i, (S, Q) in enumerate(zip(factors, old, strict=True)):
        alike.setdefault((S.shape[-1], S.dtype, S.device, Q is None), []).append(i)
    renewed: dict[int, Eigenbasis] = {}
    for members in alike.values():
        n = factors[members[0]].shape[-1]
        stacks = [factors[i].reshape(-1, n, n) for i in members]
        bases = [Q.reshape(-1, n, n) for i in members if (Q := old[i]) is not None]
        found = refresh_eigenbasis(
            torch.cat(stacks), torch.cat(bases) if bases else None, method=method, sort=sort
        )
        parts = zip(*(part.split([len(stack) for stack in stacks]) for part in found), strict=True)
        for i, (Q, eigvals, P, failed) in zip(members, parts, strict=True):
            shape = factors[i].shape
            renewed[i] = Eigenbasis(
                Q.reshape(shape).clone(),
                eigvals.reshape(shape[:-1]),
                P.reshape(shape),
                failed.reshape(shape[:-2]),
            )
    return [renewed[i] for i in range(len(factors))]
