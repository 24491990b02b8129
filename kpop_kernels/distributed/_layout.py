"""Which part of a parameter each rank holds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import _StridedShard

Block = tuple[tuple[int, int], ...]
"""First and behind-the-last index of a part of a tensor, for each dimension."""


@dataclass(frozen=True)
class Layout:
    """The parts of a parameter that ranks hold.

    Attributes:
        shape: Shape of the whole parameter.
        blocks: The block of each rank.
    """

    shape: tuple[int, ...]
    blocks: tuple[Block, ...]

    @property
    def replicated(self) -> bool:
        """Whether every rank holds the whole parameter."""
        whole = tuple((0, size) for size in self.shape)
        return all(block == whole for block in self.blocks)

    def senders(self, owner: int) -> list[int]:
        """Return ranks whose blocks make up the parameter, each block once; the owner sends its own."""
        first: dict[Block, int] = {}
        for rank in (owner, *range(len(self.blocks))):
            if length(self.blocks[rank]):
                first.setdefault(self.blocks[rank], rank)
        return sorted(first.values())

    def holders(self) -> list[int]:
        """Return ranks whose block is not empty."""
        return [rank for rank, block in enumerate(self.blocks) if length(block)]

    def flat_range(self, rank: int) -> tuple[int, int] | None:
        """Return the indices of a rank's elements in the flat parameter if they are consecutive, else None."""
        if not length(self.blocks[rank]):
            return 0, 0
        spans = zip(self.blocks[rank], self.shape, strict=True)
        cut = [i for i, (span, size) in enumerate(spans) if span != (0, size)]
        if any(cut):
            return None
        row = math.prod(self.shape[1:])
        start, stop = self.blocks[rank][0] if self.shape else (0, 1)
        return start * row, stop * row


def length(block: Block) -> int:
    """Return the number of elements of a block."""
    return math.prod(stop - start for start, stop in block)


def extent(block: Block) -> tuple[int, ...]:
    """Return the shape of a block."""
    return tuple(stop - start for start, stop in block)


def part(tensor: Tensor, block: Block) -> Tensor:
    """Return the view of a tensor that a block names."""
    return tensor[tuple(slice(start, stop) for start, stop in block)]


def common(a: Block, b: Block) -> Block:
    """Return the block that two have in common, perhaps an empty one."""
    spans = ((max(x, u), min(y, v)) for (x, y), (u, v) in zip(a, b, strict=True))
    return tuple((start, max(start, stop)) for start, stop in spans)


def relative(block: Block, outer: Block) -> Block:
    """Return a block counted from the first element of one that holds it."""
    return tuple(
        (start - first, stop - first) for (start, stop), (first, _) in zip(block, outer, strict=True)
    )


def layout_of(parameter: Tensor, name: str, ranks: Sequence[int]) -> Layout:
    """Return how a parameter lies on ranks.

    Args:
        parameter: A DTensor, or a tensor that every rank has whole.
        name: Its name, for messages.
        ranks: Global ranks of the group.

    Raises:
        ValueError: The parameter lives on other ranks, or its placement is not served.
    """
    shape = tuple(parameter.shape)
    if not isinstance(parameter, DTensor):
        return Layout(shape, (tuple((0, size) for size in shape),) * len(ranks))
    mesh = parameter.device_mesh.mesh
    if sorted(mesh.flatten().tolist()) != sorted(ranks):
        raise ValueError(
            f"{name} lives on the ranks {mesh.flatten().tolist()}, the optimizer works on {list(ranks)}: "
            "parameters of other meshes need an optimizer of their own"
        )
    order = _order(parameter, name)
    blocks = []
    for rank in ranks:
        coordinate = (mesh == rank).nonzero()[0].tolist()
        block = [(0, size) for size in shape]
        for mesh_dim, dim in order:
            block[dim] = _chunk(block[dim], mesh.shape[mesh_dim], coordinate[mesh_dim])
        blocks.append(tuple(block))
    return Layout(shape, tuple(blocks))


def group_of(mesh: Any) -> Any:
    """Return the process group that spans a mesh.

    Raises:
        ValueError: There is no such group yet.
    """
    if mesh.ndim == 1:
        return mesh.get_group()
    if mesh.size() == dist.get_world_size():
        return dist.group.WORLD
    raise ValueError(
        f"no process group spans the mesh {mesh}: make one with torch.distributed.new_group and pass it to "
        "kpop_kernels.distributed.shard as process_group"
    )


def _order(parameter: DTensor, name: str) -> list[tuple[int, int]]:
    """Return (mesh dimension, tensor dimension) of the cuts in the order in which they are made.

    A strided shard is what FSDP makes of a tensor that tensor parallelism has cut: its cut is made last.
    """
    mesh, placements = parameter.device_mesh, parameter.placements
    plain, strided = [], []
    for i, placement in enumerate(placements):
        if isinstance(placement, _StridedShard):
            dim = placement.dim
            later = [mesh.size(j) for j in range(i + 1, mesh.ndim) if _cuts(placements[j], dim)]
            if placement.split_factor != math.prod(later):
                raise ValueError(f"{name} has the placements {placements}, whose order of cuts is not known")
            strided.append((i, dim))
        elif placement.is_shard():
            plain.append((i, placement.dim))  # type: ignore[attr-defined]
        elif not placement.is_replicate():
            raise ValueError(
                f"{name} has the placement {placement}, which is not served; Shard and Replicate are"
            )
    return [(i, dim % parameter.ndim) for i, dim in (*plain, *strided)]


def _cuts(placement: Any, dim: int) -> bool:
    return placement.is_shard(dim) and not isinstance(placement, _StridedShard)


def _chunk(span: tuple[int, int], pieces: int, index: int) -> tuple[int, int]:
    """Return a piece of a span as torch.chunk cuts it: equal pieces, then a shorter one, then empty ones."""
    start, stop = span
    size = -(-(stop - start) // pieces)
    return min(start + index * size, stop), min(start + (index + 1) * size, stop)


def rows(shape: Sequence[int], ranks: int) -> list[Block]:
    """Return the blocks of rows that a tensor is cut into to be saved: those of Shard(0)."""
    return list(rows_in_steps(shape, ranks, 1))


def rows_in_steps(shape: Sequence[int], ranks: int, step: int) -> tuple[Block, ...]:
    """Return blocks of rows, one a rank, that begin at multiples of a step."""
    rest = tuple((0, size) for size in shape[1:])
    steps = -(-shape[0] // step)
    chunks = [_chunk((0, steps), ranks, rank) for rank in range(ranks)]
    return tuple(((min(a * step, shape[0]), min(b * step, shape[0])), *rest) for a, b in chunks)


def among_replicas(layout: Layout, step: int) -> Layout:
    """Return the layout in which ranks that hold the same block have rows of it each, from multiples of a step."""
    blocks = list(layout.blocks)
    for block in dict.fromkeys(layout.blocks):
        (first, _), *rest = block
        holders = [rank for rank, other in enumerate(layout.blocks) if other == block]
        for rank, ((start, stop), *_) in zip(
            holders, rows_in_steps(extent(block), len(holders), step), strict=True
        ):
            blocks[rank] = ((first + start, first + stop), *rest)
    return Layout(layout.shape, tuple(blocks))
