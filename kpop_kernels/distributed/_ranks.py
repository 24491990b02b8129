"""A step on many ranks: shards travel to a parameter's owner, who updates the whole matrix, and back."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from ..optim._buckets import Work
from ..optim._capture import Capture
from ..optim._exchange import Exchange
from ..optim._nonfinite import Finding, on_host
from ._checkpoint import own_states, shared_states
from ._layout import extent, layout_of, length, part, relative
from ._ownership import Loads, imbalance
from ._planner import Place, demand_of, places
from ._statistics import Statistics
from ._transport import Form, Transport

if TYPE_CHECKING:
    from ..optim._base import MatrixOptimizer

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Ranks(Exchange):
    """Work and state spread over the ranks of a process group.

    Every rank enters every collective in the same order: which parameters have a gradient is agreed on first, and
    all that follows is a function of that and of what all ranks know.
    """

    spans_ranks = True

    def __init__(
        self, optimizer: "MatrixOptimizer", transport: Transport, comm_dtype: torch.dtype | None
    ) -> None:
        """Share the work of an optimizer's parameters.

        Args:
            optimizer: The optimizer.
            transport: The ranks.
            comm_dtype: Dtype in which updates travel; None sends the new parameters themselves.
        """
        self._optimizer = weakref.ref(optimizer)
        self._transport = transport
        self._comm_dtype = comm_dtype
        self._places: dict[Tensor, Place] = {}
        self._loads = Loads.none(transport.size)
        self._originals: dict[int, tuple[Tensor, Tensor]] = {}
        self._statistics: Statistics | None = None

    @property
    def loads(self) -> Loads:
        """Operations a step and bytes of state that each rank has been given as an owner."""
        return self._loads

    @property
    def work_imbalance(self) -> float:
        """Largest work of an owner over the mean of all ranks."""
        return imbalance(self._loads.work)

    def place(self, parameter: Tensor) -> Place:
        """Return where a parameter is updated; decides it for all that have no place yet."""
        if parameter not in self._places:
            self._assign()
        return self._places[parameter]

    def gradients(self, groups: Sequence[dict[str, Any]]) -> list[tuple[Tensor, Tensor, dict[str, Any]]]:
        members = [(parameter, group) for group in groups for parameter in group["params"]]
        dtypes = [0 if p.grad is None else 1 + _DTYPES.index(p.grad.dtype) for p, _ in members]
        rank = self._transport.rank
        missing = [int(p.grad is None) for p, _ in members]
        lowest = [0 if p.grad is None else self._transport.size - rank for p, _ in members]
        agreed = self._transport.largest([*dtypes, *missing, *lowest])
        count = len(members)
        found = []
        for i, (parameter, group) in enumerate(members):
            if agreed[i]:
                source = self._transport.size - agreed[2 * count + i] if agreed[count + i] else None
                found.append((parameter, self._gradient(parameter, _DTYPES[agreed[i] - 1], source), group))
        return found

    def examine(self, gradients: Sequence[Tensor], must_know: Sequence[bool]) -> list[Finding]:
        if not gradients:
            return []
        device = gradients[0].device
        flags = self._transport.any_(torch.stack([_signs(gradient).to(device) for gradient in gradients]))
        if on_host(device) or any(must_know):
            return [Finding(not bad, nonzero and not bad) for bad, nonzero in flags.bool().tolist()]
        return [Finding(None, None, bad) for bad in flags[:, 0].unbind()]

    def local(self, parameter: Tensor) -> Tensor:
        return parameter.to_local() if isinstance(parameter, DTensor) else parameter

    def original(self, tensor: Tensor) -> Tensor:
        return self._originals.get(id(tensor), (tensor, tensor))[1]

    def offset(self, tensor: Tensor) -> int:
        parameter = self.original(tensor)
        place = self.place(parameter)
        span = None if place.owner is not None else place.layout.flat_range(self._transport.rank)
        return span[0] if span else 0

    def prototype(self, parameter: Tensor) -> Tensor | None:
        place, local = self.place(parameter), self.local(parameter)
        if place.owner is None:
            return self._standing_for(parameter, self._part(parameter, parameter))
        if place.owner != self._transport.rank:
            return None
        return self._standing_for(parameter, local.new_empty(()).expand(place.layout.shape))

    def update(self, work: Sequence[Work], rule: Callable[[Sequence[Work]], None]) -> None:
        self._originals.clear()
        mine = self._collect(work)
        before = [self._old(item) for item in mine.values()]
        rule([item for item in mine.values() if item.parameter.numel()])
        results = {i: self._result(item, old) for (i, item), old in zip(mine.items(), before, strict=True)}
        self._return(work, results)
        self._originals.clear()

    def sum_statistics(self, capture: Capture, parameters: Sequence[Tensor]) -> None:
        if self._statistics is None or self._statistics.capture is not capture:
            owners = {p: self.place(p).owner for p in self._parameters()}
            self._statistics = Statistics(capture, owners, self._transport)
        self._statistics.finish(parameters)

    def where(self, parameter: Tensor) -> dict[str, str]:
        owner = self.place(parameter).owner
        return {
            "updated by": "each rank its part" if owner is None else f"rank {self._transport.ranks[owner]}"
        }

    def shared_states(self, states: Mapping[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        return shared_states(states, self._parameters(), self.place, self._transport)

    def own_states(self, saved: Mapping[Tensor, Mapping[str, Any]]) -> dict[Tensor, dict[str, Any]]:
        return own_states(saved, self.place, self._transport)

    def _parameters(self) -> list[Tensor]:
        optimizer = self._optimizer()
        assert optimizer is not None
        return [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def _assign(self) -> None:
        """Give owners to all parameters that have none."""
        optimizer = self._optimizer()
        assert optimizer is not None
        demands = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter not in self._places:
                    name = f"{type(optimizer).__name__}: {optimizer._name(parameter)}"
                    layout = layout_of(parameter, name, self._transport.ranks)
                    meta = torch.empty(layout.shape, dtype=parameter.dtype, device="meta")
                    like = self._standing_for(parameter, meta)
                    demands[parameter] = demand_of(optimizer, parameter, group, layout, like)
        self._places |= places(demands, self._loads)

    def _standing_for(self, parameter: Tensor, tensor: Tensor) -> Tensor:
        self._originals[id(tensor)] = tensor, parameter
        return tensor

    def _gradient(self, parameter: Tensor, dtype: torch.dtype, source: int | None) -> Tensor:
        """Return what of a gradient is here: zeros for a shard without one, another rank's for a whole one.

        Args:
            parameter: The parameter.
            dtype: Dtype of its gradient.
            source: Some rank that has a gradient, if not all have.
        """
        grad = parameter.grad
        if isinstance(parameter, DTensor):
            if grad is None:
                return torch.zeros_like(self.local(parameter), dtype=dtype)
            assert isinstance(grad, DTensor)
            if grad.placements != parameter.placements:
                grad = grad.redistribute(parameter.device_mesh, parameter.placements)
            return grad.to_local()
        if source is not None:
            grad = torch.zeros_like(parameter, dtype=dtype) if grad is None else grad.clone()
            grad = grad.contiguous()
            self._transport.send_to_all(grad, source)
        assert grad is not None
        return grad

    def _part(self, parameter: Tensor, tensor: Tensor) -> Tensor:
        """Return the part that this rank updates of a parameter without an owner, or of its gradient."""
        place, rank = self.place(parameter), self._transport.rank
        local = self.local(tensor)
        if place.layout is place.home:
            return local
        return part(local, relative(place.layout.blocks[rank], place.home.blocks[rank]))

    def _collect(self, work: Sequence[Work]) -> dict[int, Work]:
        """Return, by place among all work, what this rank is to do, with whole gradients of what it owns."""
        rank, size = self._transport.rank, self._transport.size
        outgoing: list[list[Tensor]] = [[] for _ in range(size)]
        expected: list[list[Form]] = [[] for _ in range(size)]
        for item in work:
            place = self.place(item.parameter)
            if place.owner is None or place.replicated:
                continue
            senders = place.layout.senders(place.owner)
            if rank in senders:
                outgoing[place.owner] += [item.grad, self.local(item.parameter)]
            if place.owner == rank:
                for sender in senders:
                    shape = extent(place.layout.blocks[sender])
                    expected[sender] += [(shape, item.grad.dtype), (shape, item.parameter.dtype)]
        arrived = [iter(tensors) for tensors in self._move(work, outgoing, expected)]
        mine = {}
        for i, item in enumerate(work):
            place = self.place(item.parameter)
            if place.owner is None:
                local = self._standing_for(item.parameter, self._part(item.parameter, item.parameter))
                mine[i] = item._replace(parameter=local, grad=self._part(item.parameter, item.grad))
            elif place.owner == rank and place.replicated:
                local = self._standing_for(item.parameter, self.local(item.parameter))
                mine[i] = item._replace(parameter=local)
            elif place.owner == rank:
                mine[i] = self._assembled(item, place, arrived)
        return mine

    def _assembled(self, item: Work, place: Place, arrived: Sequence[Iterator[Tensor]]) -> Work:
        """Return work on a whole parameter, put together from the parts that arrived."""
        assert place.owner is not None
        grad, whole = (
            self.local(tensor).new_empty(place.layout.shape) for tensor in (item.grad, item.parameter)
        )
        for sender in place.layout.senders(place.owner):
            for tensor in (grad, whole):
                part(tensor, place.layout.blocks[sender]).copy_(next(arrived[sender]))
        return item._replace(parameter=self._standing_for(item.parameter, whole), grad=grad)

    def _return(self, work: Sequence[Work], results: Mapping[int, Tensor]) -> None:
        """Send what was computed to all that hold a part of it."""
        rank, size = self._transport.rank, self._transport.size
        outgoing: list[list[Tensor]] = [[] for _ in range(size)]
        expected: list[list[Form]] = [[] for _ in range(size)]
        given: list[Tensor] = []
        targets: list[list[Tensor]] = [[] for _ in range(size)]
        arriving: list[tuple[Tensor, int, Tensor | None]] = []
        for i, item in enumerate(work):
            place = self.place(item.parameter)
            blocks, local = place.layout.blocks, self.local(item.parameter)
            if place.replicated:
                given += [results[i]] if i in results else []
                for updater in range(size) if place.owner is None else [place.owner]:
                    target, in_place = self._target(part(local, blocks[updater]))
                    targets[updater].append(target)
                    if not in_place:
                        arriving.append((part(local, blocks[updater]), updater, target))
            elif place.owner is None and place.travels:
                for replica in place.replicas(rank):
                    outgoing[replica].append(results[i])
                    form = extent(blocks[replica]), self._travels_as(item.parameter)
                    expected[replica].append(form)
                    here = part(local, relative(blocks[replica], place.home.blocks[rank]))
                    arriving.append((here, replica, None))
            elif place.owner is not None:
                if place.owner == rank:
                    for holder in place.layout.holders():
                        outgoing[holder].append(part(results[i], blocks[holder]))
                if length(blocks[rank]):
                    form = extent(blocks[rank]), self._travels_as(item.parameter)
                    expected[place.owner].append(form)
                    arriving.append((local, place.owner, None))
        arrived = [iter(tensors) for tensors in self._move(work, outgoing, expected)]
        if any(targets):
            device = next(target.device for tensors in targets for target in tensors)
            self._transport.gather(given, targets, device)
        for here, owner, received in arriving:
            self._arrive(here, next(arrived[owner]) if received is None else received)

    def _target(self, tensor: Tensor) -> tuple[Tensor, bool]:
        """Return where to receive a part of a replicated parameter, and whether that is the parameter itself."""
        dtype = self._travels_as(tensor)
        in_place = dtype == tensor.dtype and tensor.is_contiguous()
        return (
            tensor if in_place else torch.empty(tensor.shape, dtype=dtype, device=tensor.device)
        ), in_place

    def _move(
        self, work: Sequence[Work], outgoing: list[list[Tensor]], expected: list[list[Form]]
    ) -> list[list[Tensor]]:
        """Move parts of parameters; nothing is said at all if no shard travels."""
        if not any(self.place(item.parameter).travels for item in work):
            return [[] for _ in expected]
        return self._transport.move(outgoing, expected, self.local(work[0].parameter).device)

    def _travels_as(self, parameter: Tensor) -> torch.dtype:
        """Return the dtype in which a parameter or its update travels."""
        comm = self._comm_dtype
        return parameter.dtype if comm is None or comm.itemsize >= parameter.dtype.itemsize else comm

    def _old(self, item: Work) -> Tensor | None:
        """Return a copy of a parameter if its update is to travel, None if it travels itself or not at all."""
        place = self.place(self.original(item.parameter))
        stays = not (place.replicated or place.travels)
        same = self._travels_as(item.parameter) == item.parameter.dtype
        return None if stays or same else item.parameter.clone()

    def _result(self, item: Work, old: Tensor | None) -> Tensor:
        """Return what travels; a parameter whose update does is put back."""
        if old is None:
            return item.parameter
        update = (item.parameter - old).to(self._travels_as(item.parameter))
        item.parameter.copy_(old)
        return update

    def _arrive(self, local: Tensor, value: Tensor) -> None:
        if self._travels_as(local) == local.dtype:
            local.copy_(value)
        else:
            local.add_(value.to(local.dtype))


def _signs(gradient: Tensor) -> Tensor:
    """Return whether a gradient holds NaN or Inf, and whether it holds anything but zeros, as numbers 0 or 1."""
    if not gradient.numel():
        return torch.zeros(2, dtype=torch.float32, device=gradient.device)
    ends = torch.stack(gradient.aminmax())
    return torch.stack([ends.isfinite().logical_not().any(), (ends != 0).any()]).float()
