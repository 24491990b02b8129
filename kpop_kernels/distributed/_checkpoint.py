"""States as they are saved: each tensor cut into rows over all ranks, so that any number of ranks can load it."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from ..optim._exchange import copy_to
from ..optim._routing import matrix_shape
from ._layout import Block, common, extent, length, part, relative, rows
from ._transport import Transport

if TYPE_CHECKING:
    from ._planner import Place

_MOVED_TOGETHER = 1 << 28
"""Bytes of all ranks together that one all_to_all moves, or one tensor."""


def shared_states(
    states: Mapping[int, dict[str, Any]],
    parameters: Sequence[Tensor],
    place: Callable[[Tensor], "Place"],
    transport: Transport,
) -> dict[int, dict[str, Any]]:
    """Return states whose tensors are DTensors of whole shape, cut into rows over all ranks; the step stays.

    Args:
        states: What is here of each parameter's state, by number.
        parameters: All parameters, by number.
        place: Returns where a parameter is updated.
        transport: The ranks; all of them must call this.
    """
    told = transport.tell({number: _described(state) for number, state in states.items()})
    moves = Moves(transport)
    result: dict[int, dict[str, Any]] = {}
    for number, state in states.items():
        parameter = parameters[number]
        where = place(parameter)
        teller = next(iter(where.layout.holders()), 0) if where.owner is None else where.owner
        saved = {"step": state["step"]}
        for key, fact in told[teller][number].items():
            if not isinstance(fact, tuple):
                saved[key] = copy_to(parameter, key, fact)
                continue
            shape, dtype = fact
            if where.owner is None:
                shape = _whole_shape(parameter, shape, where.granule)
            held = _held(where, shape, transport.size)
            local = state.get(key, torch.empty(0, dtype=dtype, device=parameter.device))
            mine = moves.add(local, dtype, held, rows(shape, transport.size))
            saved[key] = _in_rows(mine, shape, moves.mesh(parameter.device.type))
        result[number] = saved
    moves.finish()
    return result


def own_states(
    saved: Mapping[Tensor, Mapping[str, Any]], place: Callable[[Tensor], "Place"], transport: Transport
) -> dict[Tensor, dict[str, Any]]:
    """Return copies of what a rank keeps of saved states, whose tensors are whole or DTensors.

    Args:
        saved: States by parameter, with the same keys in the same order on every rank.
        place: Returns where a parameter is updated.
        transport: The ranks; all of them must call this.
    """
    moves = Moves(transport)
    result: dict[Tensor, dict[str, Any]] = {}
    for parameter, of_parameter in saved.items():
        where, state = place(parameter), result.setdefault(parameter, {})
        for key, value in of_parameter.items():
            if key == "step" or not isinstance(value, Tensor) or not value.ndim:
                state[key] = copy_to(parameter, key, _whole(value))
                continue
            wanted = _held(where, tuple(value.shape), transport.size)
            block = wanted[transport.rank]
            if isinstance(value, DTensor) and moves.in_rows(value):
                local = value.to_local().to(parameter.device)
                arriving = moves.add(local, value.dtype, rows(value.shape, transport.size), wanted)
                if block is not None:
                    state[key] = arriving
                continue
            whole = _whole(value)
            if block is not None:
                state[key] = copy_to(parameter, key, part(whole, block)).contiguous()
    moves.finish()
    return result


class Moves:
    """Parts of tensors that travel between ranks, many in one all_to_all; all ranks add the same tensors."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._meshes: dict[str, DeviceMesh] = {}
        self._waiting: dict[torch.device, list[_Move]] = {}
        self._bytes = 0

    def mesh(self, kind: str) -> DeviceMesh:
        """Return the mesh of all ranks for a kind of device."""
        if kind not in self._meshes:
            self._meshes[kind] = DeviceMesh.from_group(self._transport.group, kind)
        return self._meshes[kind]

    def in_rows(self, value: DTensor) -> bool:
        """Return whether a tensor is cut into rows over all ranks, as states are saved."""
        return value.placements == (Shard(0),) and value.device_mesh.mesh.tolist() == self._transport.ranks

    def add(
        self,
        local: Tensor,
        dtype: torch.dtype,
        held: Sequence[Block | None],
        wanted: Sequence[Block | None],
    ) -> Tensor:
        """Return what will be this rank's wanted block of a tensor, once `finish` has been called.

        Args:
            local: This rank's held block; anything on its device if it holds none.
            dtype: The tensor's dtype.
            held: The block of each rank. Equal blocks are sent once.
            wanted: The block that each rank shall have.
        """
        block = wanted[self._transport.rank]
        mine = local.new_empty(extent(block) if block else (0,), dtype=dtype)
        self._waiting.setdefault(local.device, []).append(_Move(local, mine, held, wanted))
        self._bytes += dtype.itemsize * sum(length(block) for block in wanted if block)
        if self._bytes >= _MOVED_TOGETHER:
            self.finish()
        return mine

    def finish(self) -> None:
        """Move all that was added."""
        for device, moves in self._waiting.items():
            self._move(moves, device)
        self._waiting, self._bytes = {}, 0

    def _move(self, moves: "Sequence[_Move]", device: torch.device) -> None:
        rank, size = self._transport.rank, self._transport.size
        outgoing: list[list[Tensor]] = [[] for _ in range(size)]
        targets: list[list[Tensor]] = [[] for _ in range(size)]
        for move in moves:
            for sender, receiver, block in move.travels():
                if sender == rank:
                    outgoing[receiver].append(part(move.local, relative(block, _known(move.held[rank]))))
                if receiver == rank:
                    targets[sender].append(part(move.mine, relative(block, _known(move.wanted[rank]))))
        expected = [[(tuple(t.shape), t.dtype) for t in tensors] for tensors in targets]
        arrived = self._transport.move(outgoing, expected, device)
        for to, values in zip(targets, arrived, strict=True):
            for target, value in zip(to, values, strict=True):
                target.copy_(value)


@dataclass(frozen=True)
class _Move:
    """A tensor of which ranks hold blocks and want others."""

    local: Tensor
    mine: Tensor
    held: Sequence[Block | None]
    wanted: Sequence[Block | None]

    def travels(self) -> Iterator[tuple[int, int, Block]]:
        """Yield sender, receiver and block of all that travels, in the same order on every rank."""
        first = {b: r for r, b in reversed(list(enumerate(self.held))) if b is not None and length(b)}
        for block, sender in sorted(first.items()):
            for receiver, wanted in enumerate(self.wanted):
                overlap = None if wanted is None else common(block, wanted)
                if overlap is not None and length(overlap):
                    yield sender, receiver, overlap


def _known(block: Block | None) -> Block:
    assert block is not None
    return block


def _in_rows(mine: Tensor, shape: Sequence[int], mesh: DeviceMesh) -> DTensor:
    """Return the tensor of which each rank has a block of rows."""
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(mine, mesh, [Shard(0)], run_check=False, shape=torch.Size(shape), stride=stride)


def _whole(value: Any) -> Any:
    return value.full_tensor() if isinstance(value, DTensor) else value


def _described(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return shape and dtype of each tensor of a state, and other values themselves."""
    return {
        key: (tuple(value.shape), value.dtype) if isinstance(value, Tensor) and value.ndim else value
        for key, value in state.items()
        if key != "step"
    }


def _whole_shape(parameter: Tensor, shape: Sequence[int], granule: int) -> tuple[int, ...]:
    """Return the shape of a state entry of which a rank has a part: one value a block, or one an element."""
    if len(shape) == 1:
        return (-(-parameter.numel() // granule),)
    return matrix_shape(parameter)


def _held(where: "Place", shape: tuple[int, ...], ranks: int) -> list[Block | None]:
    """Return the block of a state entry of some shape that each rank keeps."""
    whole = tuple((0, size) for size in shape)
    if where.owner is not None:
        return [whole if rank == where.owner else None for rank in range(ranks)]
    if shape == where.layout.shape:
        return list(where.layout.blocks)
    count = math.prod(where.layout.shape)
    blocks: list[Block | None] = []
    for rank in range(ranks):
        span = where.layout.flat_range(rank)
        assert span is not None
        start, stop = span
        if len(shape) == 1 and shape[0] != count:
            start, stop = start // where.granule, -(-stop // where.granule)
        lead = 1 if len(where.layout.shape) < 2 and len(shape) > 1 else 0
        row = math.prod(shape[lead + 1 :])
        blocks.append((*whole[:lead], (start // row, stop // row), *whole[lead + 1 :]))
    return blocks
