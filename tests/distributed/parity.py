"""Runs of an optimizer on given gradients: in one process, replicated, and sharded in several ways."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.optim import Optimizer

from kpop_kernels.distributed import shard
from kpop_kernels.optim import state_bytes
from tests.optim.conventions.workload import gradient, parameters
from tests.optim.registry import CASES

SHAPES = ((16, 12), (5, 3), (1, 7), (7, 1), (9,), (3, 6, 4), (4, 3, 2, 2), (2, 8), (12, 12), (64, 80), (3,))
"""Fewer rows than ranks, single rows and columns, vectors, stacks, kernels, and one that QClean keeps in blocks."""

STEPS = 20
OURS = {case.name: case for case in CASES if case.ours}

Gradients = Callable[[int, int, Tensor], Tensor | None]
"""Gradient of a step and a parameter's number on this rank, of a whole parameter; None is none."""


def usual(step: int, index: int, parameter: Tensor) -> Tensor | None:
    """Gradients everywhere, but one parameter is never used and one is frozen in the middle."""
    if index == 8 or (index == 0 and 7 <= step < 12):
        return None
    return gradient(parameter, step, index)


def one_rank_without(step: int, index: int, parameter: Tensor) -> Tensor | None:
    """As `usual`, but rank 0 has no gradient for some parameters on some steps: those of zeros."""
    G = usual(step, index, parameter)
    if G is None or step % 3 or index % 2:
        return G
    rank = dist.get_rank() if dist.is_initialized() else -1
    return None if rank == 0 else G


def make(name: str, params: Sequence[Tensor], **hyperparameters: Any) -> Optimizer:
    """The optimizer of a case."""
    rules = {"#9": "adam"}  # the one that is long enough for QClean's blocks
    return OURS[name].make(params, **{"weight_decay": 0.1, "rules": rules, **hyperparameters})


def alone(name: str, steps: int = STEPS, gradients: Gradients = usual, **hyperparameters: Any) -> list[Tensor]:
    """Parameters after some steps in one process."""
    params = parameters(SHAPES)
    optimizer = make(name, params, **hyperparameters)
    for step in range(1, steps + 1):
        for index, parameter in enumerate(params):
            parameter.grad = gradients(step, index, parameter)
        optimizer.step()
    return [parameter.detach() for parameter in params]
