"""Runs of an optimizer on given gradients: in one process, replicated, and sharded in several ways."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.optim import Optimizer

from kpop_kernels.distributed import shard
from kpop_kernels.optim import state_bytes
from tests.optim.conventions.workload import gradient, parameters
from tests.optim.registry import CASES

SHAPES = ((16, 12), (5, 3), (1, 7), (7, 1), (9,), (3, 6, 4), (4, 3, 2, 2), (2, 8), (12, 12), (64, 80), (3,))
"""Fewer rows than ranks, single rows and columns, vectors, stacks, kernels, one that QClean keeps in blocks."""

STEPS = 20
OURS = {case.name: case for case in CASES if case.ours}

Gradients = Callable[[int, int, Tensor], Tensor | None]
"""Gradient of a step and a parameter's number on this rank, of a whole parameter; None is none."""


def usual(step: int, index: int, parameter: Tensor) -> Tensor | None:
    """Gradients everywhere, but one parameter is never used and one is frozen in the middle."""
    if index == 8 or (index == 0 and 7 <= step < 12):
        return None
    return gradient(parameter, step, index)


def _left_out(step: int, index: int) -> bool:
    return step % 3 == 0 and index % 2 == 0


def _one_rank_without(step: int, index: int, parameter: Tensor) -> Tensor | None:
    return None if _left_out(step, index) and dist.get_rank() == 0 else usual(step, index, parameter)


def _rows_of_a_rank_zero(step: int, index: int, parameter: Tensor) -> Tensor | None:
    G = usual(step, index, parameter)
    if G is not None and _left_out(step, index):
        G.chunk(4)[0].zero_()
    return G


def _nan(step: int, index: int, parameter: Tensor) -> Tensor | None:
    G = usual(step, index, parameter)
    if (step, index) == (3, 1) and G is not None:
        G.view(-1)[-1] = torch.nan
    return G


def _nan_on_one_rank(step: int, index: int, parameter: Tensor) -> Tensor | None:
    return (_nan if dist.get_rank() == 1 else usual)(step, index, parameter)


GRADIENTS: dict[str, Gradients] = {
    "usual": usual,
    "one rank without": _one_rank_without,
    "rows of rank 0 of 4 are zero": _rows_of_a_rank_zero,
    "NaN": _nan,
    "NaN on rank 1": _nan_on_one_rank,
}


def make(name: str, params: Sequence[Tensor]) -> Optimizer:
    """The optimizer of a case."""
    # The one that is long enough for QClean's blocks.
    rules = {f"#{i}": "adam" for i, parameter in enumerate(params) if parameter.shape == (64, 80)}
    return OURS[name].make(params, weight_decay=0.1, rules=rules)


@cache
def _gradients(gradients: str, dtype: torch.dtype, kind: str | None = None) -> list[list[Tensor | None]]:
    """Gradients of all steps, the same objects for every optimizer, none of which may change them."""
    params = parameters(SHAPES, dtype)
    steps = []
    for step in range(1, STEPS + 1):
        whole = [GRADIENTS[gradients](step, index, parameter) for index, parameter in enumerate(params)]
        steps.append([G if G is None or kind is None else distributed(G, kind) for G in whole])
    return steps


def _train(optimizer: Optimizer, params: Sequence[Tensor], steps: list[list[Tensor | None]]) -> None:
    for gradients in steps:
        for parameter, G in zip(params, gradients, strict=True):
            parameter.grad = G
        optimizer.step()


def alone(name: str, gradients: str = "usual", dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Parameters after training in one process."""
    params = parameters(SHAPES, dtype)
    _train(make(name, params), params, _gradients(gradients, dtype))
    return [parameter.detach() for parameter in params]


def replicated(
    name: str,
    gradients: str = "usual",
    dtype: torch.dtype = torch.float32,
    comm_dtype: torch.dtype | None = None,
) -> tuple[list[Tensor], dict[str, Any]]:
    """Parameters after training with all of them on every rank, and facts of this rank."""
    params = parameters(SHAPES, dtype)
    optimizer = shard(make(name, params), comm_dtype=comm_dtype)
    _train(optimizer, params, _gradients(gradients, dtype))
    return [parameter.detach() for parameter in params], _facts(optimizer)


MESHES: dict[str, tuple[tuple[int, ...], tuple[Any, ...]]] = {
    "FSDP2": ((-1,), (Shard(0),)),
    "FSDP2 by columns": ((-1,), (Shard(-1),)),
    "FSDP2 but for some": ((-1,), (Shard(0),)),
    "HSDP": ((2, -1), (Replicate(), Shard(0))),
    "tensor parallel": ((-1, 2), (Shard(0), Shard(-1))),
}
"""Shape of the mesh, as far as there are ranks for it (-1 is all others), and placements of the parameters."""


@cache
def mesh_of(kind: str) -> DeviceMesh:
    """The mesh of a kind of parallelism over all ranks."""
    world = dist.get_world_size()
    sizes = [min(n, world) for n in MESHES[kind][0]]
    rest = world // math.prod(n for n in sizes if n > 0)
    shape = tuple(rest if n < 0 else n for n in sizes)
    return init_device_mesh("cpu", shape, mesh_dim_names=("outer", "inner")[: len(shape)])


def distributed(parameter: Tensor, kind: str) -> Tensor:
    """A tensor as a kind of parallelism lays it out."""
    if kind == "FSDP2 but for some" and parameter.shape[0] in (3, 16, 64):
        return parameter.detach()
    last = max(parameter.ndim - 1, 0)
    placements = [Shard(last) if p == Shard(-1) else p for p in MESHES[kind][1]]
    return distribute_tensor(parameter.detach(), mesh_of(kind), placements, src_data_rank=None)


def sharded(
    name: str,
    kind: str,
    gradients: str = "usual",
    dtype: torch.dtype = torch.float32,
    comm_dtype: torch.dtype | None = None,
) -> tuple[list[Tensor], dict[str, Any]]:
    """Parameters after training with each of them cut into shards, and facts of this rank."""
    params = [nn.Parameter(distributed(parameter, kind)) for parameter in parameters(SHAPES, dtype)]
    optimizer = make(name, params)
    if comm_dtype is not None:
        shard(optimizer, comm_dtype=comm_dtype)
    _train(optimizer, params, _gradients(gradients, dtype, kind))
    values = [p.full_tensor() if isinstance(p, DTensor) else p for p in params]
    return [value.detach() for value in values], _facts(optimizer)


def _facts(optimizer: Optimizer) -> dict[str, Any]:
    return {
        "state bytes": state_bytes(optimizer),
        "imbalance": optimizer._exchange.work_imbalance,
        "explanation": optimizer.explain(),
        "skipped": optimizer.skipped,
    }
