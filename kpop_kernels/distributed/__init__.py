"""Optimizers on more than one device: each matrix's work is done by one rank, and so is its state kept.

`shard` does it for replicated parameters (DDP). Parameters that are DTensors (FSDP2, HSDP, tensor parallelism) are
recognized by the optimizers themselves. ``python -m kpop_kernels.distributed`` prints what a plan would cost.
"""

from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from ..optim._base import MatrixOptimizer

    Optimizer = TypeVar("Optimizer", bound=MatrixOptimizer)


def shard(
    optimizer: "Optimizer", process_group: Any = None, *, comm_dtype: torch.dtype | None = None
) -> "Optimizer":
    """Share an optimizer's work and state among the ranks of a process group, and return the optimizer.

    Every parameter gets an owner, which updates it whole and alone keeps its state; the others get what it
    computed. Owners are chosen by work and bytes of state, largest first. A parameter that is cut into shards and
    whose elements are updated for themselves (embeddings, biases) has no owner: each rank updates its shard. The
    mathematics is that of a single process, and with ``comm_dtype=None`` so are the bits.

    Replicated parameters must hold the same values and gradients on all ranks, as DistributedDataParallel sees to.
    For DTensor parameters optimizers call this by themselves; call it to choose a group or ``comm_dtype``. Without
    torch.distributed in use nothing happens, so one script serves both.

    From then on `step`, `init_state`, `state_dict` and `load_state_dict` communicate: every rank must call them.
    `state_dict` holds DTensors, which torch.distributed.checkpoint saves and loads on any number of ranks.

    Args:
        optimizer: One of this package's optimizers that has taken no step.
        process_group: The ranks; None is those that the DTensor parameters live on, or all.
        comm_dtype: Dtype in which updates travel back from owners, torch.bfloat16 or torch.float16, if it is
            narrower than a parameter's; all ranks, the owner too, then move by the rounded update. None sends
            the new parameters themselves.

    Raises:
        ValueError: The optimizer has state already; parameters live on other ranks than the group's; or a
            placement is neither Shard nor Replicate.
    """
    from ._connect import connect

    connect(optimizer, process_group, comm_dtype)
    return optimizer
