"""Second moments of layer inputs and output gradients, added up over ranks while the backward pass goes on."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .._schema import compute_dtype
from ..optim._capture import Capture, LayerSums, SideSum
from ..optim._triangle import pack, packed_length, unpack
from ._transport import Transport

_DIGIT = 4096
"""Row counts travel as two digits to this base: floating-point sums of them are exact."""


@dataclass
class _Flight:
    """Sums of a parameter that are on their way to its owner."""

    buffer: Tensor
    epoch: int
    done: Any


class Statistics:
    """Sums of each watched parameter, reduced to its owner.

    A parameter's sums are complete when its gradient has been accumulated. They leave then, as packed triangles,
    in an order that is the same on all ranks: no sooner than those before, and those of layers that a rank did
    not pass at the end, as zeros. This happens once between two steps; what later backward passes add
    (accumulation) goes in a second round at the step. All of it has a process group of its own, so that it does
    not matter when it happens between other collectives of the backward pass.
    """

    def __init__(self, capture: Capture, owners: Mapping[Tensor, int | None], transport: Transport) -> None:
        """Watch when gradients arrive.

        Args:
            capture: Where sums are gathered, and where an owner finds them in the end.
            owners: The owner of each parameter.
            transport: The ranks.
        """
        self.capture = capture
        self._transport = transport
        self._group = transport.new_group()
        self._owners = {p: owners[p] for p in reversed(capture.watched()) if owners.get(p) is not None}
        self._order = list(self._owners)
        self._ready: set[Tensor] = set()
        self._flights: list[_Flight] = []
        for parameter in self._order:
            parameter.register_post_accumulate_grad_hook(_telling(weakref.WeakMethod(self.note)))

    def note(self, parameter: Tensor) -> None:
        """Note that a parameter's gradient is there, and send what can be sent in order."""
        if self.capture.enabled:
            self._ready.add(parameter)
        while len(self._flights) < len(self._order) and self._order[len(self._flights)] in self._ready:
            self._send(self._order[len(self._flights)])

    def finish(self, parameters: Sequence[Tensor]) -> None:
        """Put the sums of all ranks where owners find them.

        Args:
            parameters: Those that are updated now; sums of others are dropped.
        """
        wanted = set(parameters)
        first = self._round()
        more = any(self.capture.has(parameter) for parameter in self._order)
        rounds = [first]
        if self._transport.largest([int(more)])[0]:
            rounds.append(self._round())
        for i, parameter in enumerate(self._order):
            arrived = [flights[i].buffer for flights in rounds if flights[i].epoch == self.capture.epoch]
            if self._owners[parameter] == self._transport.rank and parameter in wanted and arrived:
                sums = self._unpacked(
                    parameter, torch.stack(arrived).sum(0) if len(arrived) > 1 else arrived[0]
                )
                if sums is not None:
                    self.capture.put(parameter, sums)

    def _round(self) -> list[_Flight]:
        """Send what has not been sent, wait for all, and return what arrived, in order."""
        for parameter in self._order[len(self._flights) :]:
            self._send(parameter)
        flights, self._flights = self._flights, []
        self._ready.clear()
        for flight in flights:
            flight.done.wait()
        return flights

    def _send(self, parameter: Tensor) -> None:
        owner = self._owners[parameter]
        assert owner is not None
        buffer = self._packed(parameter, self.capture.take(parameter))
        destination = self._transport.ranks[owner]
        done = dist.reduce(buffer, destination, group=self._group, async_op=True)
        self._flights.append(_Flight(buffer, self.capture.epoch, done))

    def _packed(self, parameter: Tensor, sums: LayerSums | None) -> Tensor:
        """Return one vector with the triangle, the mean's numerator if it is wanted, and the count of each sum."""
        parts = []
        for side, kind, n in self.capture.slots(parameter):
            of_kind: SideSum | None = None if sums is None else getattr(sums, side).get(kind)
            if of_kind is None:
                of_kind = self.capture.no_rows(parameter, n, parameter.device)
            parts.append(pack(of_kind.gram))
            if of_kind.total is not None:
                parts.append(of_kind.total)
            parts.append(of_kind.gram.new_tensor(divmod(of_kind.rows, _DIGIT)))
        return torch.cat(parts) if parts else torch.zeros(0, dtype=compute_dtype(parameter))

    def _unpacked(self, parameter: Tensor, buffer: Tensor) -> LayerSums | None:
        """Return the sums that a vector holds, or None if no rank saw any row.

        Each rank's loss is a mean, and gradients are averaged over ranks: so are output gradients.
        """
        sums, start = LayerSums(), 0
        for side, kind, n in self.capture.slots(parameter):
            share = 1 / self._transport.size if side == "left" else 1.0
            gram = unpack(buffer[start : (start := start + packed_length(n))]) * share**2
            total = None
            if self.capture.center:
                total = buffer[start : (start := start + n)] * share
            high, low = buffer[start : (start := start + 2)].tolist()
            rows = int(high) * _DIGIT + int(low)
            if rows:
                getattr(sums, side)[kind] = SideSum(gram, total, rows)
        return sums if sums.left or sums.right else None


def _telling(note: Callable[[], Callable[[Tensor], None] | None]) -> Callable[[Tensor], None]:
    """Return a hook that passes a parameter on as long as somebody listens."""

    def hook(parameter: Tensor) -> None:
        listener = note()
        if listener is not None:
            listener(parameter)

    return hook
