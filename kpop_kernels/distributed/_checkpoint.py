"""States as they are saved: each tensor cut into rows over all ranks, so that any number of ranks can load it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from ..optim._exchange import copy_to
from ..optim._routing import matrix_shape
from ._layout import Block, common, extent, length, part, relative, rows
from ._transport import Form, Transport

if TYPE_CHECKING:
    from ._planner import Place


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
    meshes = {kind: DeviceMesh.from_group(transport.group, kind) for kind in _device_kinds(parameters)}
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
            wanted = rows(shape, transport.size)
            local = state.get(key, torch.empty(0, dtype=dtype, device=parameter.device))
            mine = _moved(local, dtype, held, wanted, transport)
            saved[key] = DTensor.from_local(
                mine,
                meshes[parameter.device.type],
                [Shard(0)],
                run_check=False,
                shape=torch.Size(shape),
                stride=torch.empty(shape, device="meta").stride(),
            )
        result[number] = saved
    return result


def own_state(parameter: Tensor, saved: Mapping[str, Any], where: "Place", rank: int) -> dict[str, Any]:
    """Return copies of what a rank keeps of a saved state, whose tensors are whole or DTensors.

    Args:
        parameter: The parameter.
        saved: Its state, with the same keys on every rank.
        where: Where the parameter is updated.
        rank: This rank.
    """
    state: dict[str, Any] = {}
    for key, value in saved.items():
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        if key == "step" or not isinstance(whole, Tensor) or not whole.ndim:
            state[key] = copy_to(parameter, key, whole)
            continue
        block = _held(where, tuple(whole.shape), rank + 1)[rank]
        if block is not None:
            state[key] = copy_to(parameter, key, part(whole, block)).contiguous()
    return state


def _described(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return shape and dtype of each tensor of a state, and other values themselves."""
    return {
        key: (tuple(value.shape), value.dtype) if isinstance(value, Tensor) and value.ndim else value
        for key, value in state.items()
        if key != "step"
    }


def _device_kinds(parameters: Sequence[Tensor]) -> list[str]:
    return sorted({parameter.device.type for parameter in parameters})


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


def _moved(
    local: Tensor,
    dtype: torch.dtype,
    held: Sequence[Block | None],
    wanted: Sequence[Block],
    transport: Transport,
) -> Tensor:
    """Return this rank's wanted block of a tensor of which ranks hold blocks; equal blocks are sent once."""
    rank, size = transport.rank, transport.size
    first = {block: r for r, block in reversed(list(enumerate(held))) if block is not None and length(block)}
    outgoing: list[list[Tensor]] = [[] for _ in range(size)]
    expected: list[list[Form]] = [[] for _ in range(size)]
    places: list[tuple[int, Block]] = []
    for block, sender in sorted(first.items()):
        for receiver in range(size):
            overlap = common(block, wanted[receiver])
            if not length(overlap):
                continue
            if sender == rank:
                outgoing[receiver].append(part(local, relative(overlap, block)))
            if receiver == rank:
                expected[sender].append((extent(overlap), dtype))
                places.append((sender, relative(overlap, wanted[rank])))
    arrived = [iter(tensors) for tensors in transport.move(outgoing, expected, local.device)]
    mine = local.new_empty(extent(wanted[rank]), dtype=dtype)
    for sender, block in places:
        part(mine, block).copy_(next(arrived[sender]))
    return mine
