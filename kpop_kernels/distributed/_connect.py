"""Putting an optimizer on the ranks of a process group."""

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from ._layout import group_of
from ._ranks import Ranks
from ._transport import Transport

if TYPE_CHECKING:
    from ..optim._base import MatrixOptimizer


def connect(optimizer: "MatrixOptimizer", process_group: Any, comm_dtype: torch.dtype | None) -> None:
    """Let an optimizer share work with the ranks of a group, as `shard` documents."""
    if comm_dtype not in (None, torch.bfloat16, torch.float16):
        raise ValueError(
            f"shard: comm_dtype is {comm_dtype}, it must be None, torch.bfloat16 or torch.float16"
        )
    if any(optimizer.state.values()):
        raise ValueError("shard: the optimizer has taken a step; share its work before, then load its state")
    if not (dist.is_available() and dist.is_initialized()):
        return
    if process_group is None:
        tensors = (p for group in optimizer.param_groups for p in group["params"] if isinstance(p, DTensor))
        first = next(tensors, None)
        process_group = dist.group.WORLD if first is None else group_of(first.device_mesh)
    optimizer._exchange = Ranks(optimizer, Transport(process_group), comm_dtype)
