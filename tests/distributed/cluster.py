"""Processes that form process groups of any size up to four, on gloo, and run functions on every rank."""

import datetime
import multiprocessing
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

WATCHDOG = 60.0
"""Seconds after which a function that has not returned on all ranks is a failure."""

_CONTEXT = multiprocessing.get_context("forkserver")
_PRELOADED = [
    "torch._dynamo",  # which DTensor and checkpoints import when they are used
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "kpop_kernels.optim",
    "kpop_kernels.distributed._connect",
]


class Hang(AssertionError):
    """Some rank did not come back in time."""


class Cluster:
    """Up to `size` processes, forked from one that has imported torch, which all live until `close`."""

    def __init__(self, size: int, timeout: float = WATCHDOG / 2) -> None:
        _CONTEXT.set_forkserver_preload([*_PRELOADED, "tests.distributed.cluster"])
        self._timeout = timeout
        self._stores = tempfile.TemporaryDirectory()
        self._groups = 0
        self._world = 0
        self._pipes: list[Connection] = []
        self.processes: list[Any] = []
        for rank in range(size):
            here, there = _CONTEXT.Pipe()
            process = _CONTEXT.Process(target=_serve, args=(rank, there), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self.processes.append(process)

    def run(self, world: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call ``function(*args)`` on the ranks 0 to world - 1 of a process group; return what each returned.

        An exception on any rank is raised here, with all tracebacks; after one the processes start a new group.
        """
        if world != self._world:
            self._groups += 1
            self._world = world
        store = Path(self._stores.name) / str(self._groups)
        for pipe in self._pipes[:world]:
            pipe.send((world, str(store), self._timeout, function, args))
        outcomes = self._collect(world)
        errors = [f"rank {rank}: {outcome}" for rank, (good, outcome) in enumerate(outcomes) if not good]
        if errors:
            self._world = 0
            raise AssertionError("\n".join(errors))
        return [outcome for _, outcome in outcomes]

    def close(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.kill()
            process.join()
        self._stores.cleanup()

    def _collect(self, world: int) -> list[tuple[bool, Any]]:
        outcomes: dict[int, tuple[bool, Any]] = {}
        deadline = time.monotonic() + WATCHDOG
        while len(outcomes) < world:
            pending = {self._pipes[rank]: rank for rank in range(world) if rank not in outcomes}
            ready = wait(list(pending), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                self.close()
                raise Hang(f"ranks {sorted(pending.values())} have not returned after {WATCHDOG} s")
            for pipe in ready:
                try:
                    outcomes[pending[pipe]] = pipe.recv()
                except EOFError:
                    outcomes[pending[pipe]] = False, "the process has died"
        return [outcomes[rank] for rank in range(world)]


def _serve(rank: int, pipe: Connection) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    current = None
    while True:
        try:
            world, store, timeout, function, args = pipe.recv()
        except EOFError:
            return
        try:
            if current != store:
                if dist.is_initialized():
                    dist.destroy_process_group()
                dist.init_process_group(
                    "gloo",
                    init_method=f"file://{store}",
                    rank=rank,
                    world_size=world,
                    timeout=datetime.timedelta(seconds=timeout),
                )
                current = store
            result = True, function(*args)
        except BaseException:
            result = False, traceback.format_exc()
        pipe.send(result)
