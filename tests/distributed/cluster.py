"""Processes that form process groups of any size, on gloo, and run functions on every rank."""

import datetime
import multiprocessing
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

WATCHDOG = 60.0
"""Seconds after which a function that has not returned on all ranks is a failure."""

TIMEOUT = 30.0
"""Seconds after which a collective that not all ranks enter is an error on those that did."""

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
    """Process groups of any size, each of processes of its own, made when they are first used."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self._groups: dict[int, _Group] = {}

    def run(self, world: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call ``function(*args)`` on all ranks of a process group of some size; return what each returned.

        An exception on any rank is raised here, with all tracebacks, and ends that group.
        """
        if world not in self._groups:
            self._groups[world] = _Group(world, self._timeout)
        try:
            return self._groups[world].run(function, *args)
        except AssertionError:
            self._groups.pop(world).close()
            raise

    def close(self) -> None:
        """End all processes."""
        for group in self._groups.values():
            group.close()
        self._groups.clear()


class _Group:
    """Processes, forked from one that has imported torch, that form a process group."""

    def __init__(self, world: int, timeout: float) -> None:
        _CONTEXT.set_forkserver_preload([*_PRELOADED, "tests.distributed.cluster"])
        self._folder = tempfile.TemporaryDirectory()
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        for rank in range(world):
            here, there = _CONTEXT.Pipe()
            options = dict(
                init_method=f"file://{self._folder.name}/store",
                rank=rank,
                world_size=world,
                timeout=datetime.timedelta(seconds=timeout),
            )
            process = _CONTEXT.Process(target=_serve, args=(there, options), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call ``function(*args)`` on all ranks and return what each returned."""
        for pipe in self._pipes:
            pipe.send((function, args))
        outcomes = self._collect()
        errors = [f"rank {rank}: {outcome}" for rank, (good, outcome) in enumerate(outcomes) if not good]
        if errors:
            raise AssertionError("\n".join(errors))
        return [outcome for _, outcome in outcomes]

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()
            process.join()
        self._folder.cleanup()

    def _collect(self) -> list[tuple[bool, Any]]:
        outcomes: dict[int, tuple[bool, Any]] = {}
        deadline = time.monotonic() + WATCHDOG
        while len(outcomes) < len(self._pipes):
            pending = {pipe: rank for rank, pipe in enumerate(self._pipes) if rank not in outcomes}
            ready = wait(list(pending), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                raise Hang(f"ranks {sorted(pending.values())} have not returned after {WATCHDOG} s")
            for pipe in ready:
                assert isinstance(pipe, Connection)
                try:
                    outcomes[pending[pipe]] = pipe.recv()
                except EOFError:
                    outcomes[pending[pipe]] = False, "the process has died"
        return [outcomes[rank] for rank in range(len(self._pipes))]


def _serve(pipe: Connection, options: dict[str, Any]) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", **options)
    while True:
        try:
            function, args = pipe.recv()
        except EOFError:
            return
        try:
            result = True, function(*args)
        except BaseException:
            result = False, traceback.format_exc()
        pipe.send(result)
