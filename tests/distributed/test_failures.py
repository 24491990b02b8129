"""A rank that dies or leaves the common path ends the others with an error, and one process needs none of this."""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import DTensor

import kpop_kernels
from kpop_kernels.distributed import shard
from tests.distributed.cluster import Cluster
from tests.distributed.parity import SHAPES, distributed, make, usual
from tests.optim.conventions.workload import parameters, set_gradients


def _dies_in_the_third_step(kind: str) -> None:
    whole = parameters(SHAPES)
    params = whole if kind == "replicated" else [torch.nn.Parameter(distributed(p, kind)) for p in whole]
    optimizer = make("SOAP", params)
    if kind == "replicated":
        shard(optimizer)
    rank = torch.distributed.get_rank()
    for step in range(1, 6):
        if step == 3 and rank == 1:
            os._exit(1)
        set_gradients(whole, step)
        for parameter, like in zip(params, whole, strict=True):
            G = like.grad
            parameter.grad = distributed(G, kind) if isinstance(parameter, DTensor) else G
        optimizer.step()


@pytest.mark.parametrize("kind", ("replicated", "FSDP2"))
def test_a_killed_rank_ends_the_others_with_an_error(kind):
    ranks = Cluster()
    try:
        started = time.monotonic()
        with pytest.raises(AssertionError, match="rank 1: the process has died") as raised:
            ranks.run(3, _dies_in_the_third_step, kind)
        assert time.monotonic() - started < 60
        for survivor in (0, 2):
            assert f"rank {survivor}: Traceback" in str(raised.value)
    finally:
        ranks.close()


def _enters_what_its_own_gradients_say() -> None:
    """What would happen if ranks did not agree first: rank 0 leaves out a collective."""
    from kpop_kernels.distributed._transport import Transport

    Transport.largest = lambda self, numbers: list(numbers)
    params = parameters(SHAPES)
    optimizer = shard(make("SOAP", params))
    for index, parameter in enumerate(params):
        skipped = torch.distributed.get_rank() == 0 and index > 1
        parameter.grad = None if skipped else usual(1, index, parameter)
    optimizer.step()


def test_ranks_that_do_not_agree_are_noticed():
    ranks = Cluster(timeout=5)
    try:
        with pytest.raises(AssertionError, match=r"Traceback|died"):
            ranks.run(2, _enters_what_its_own_gradients_say)
    finally:
        ranks.close()


def test_one_process_needs_nothing_of_torch_distributed():
    """Neither does the package import it outside this folder, nor this folder when it steps."""
    package = Path(kpop_kernels.__file__).parent
    files = [path for path in package.rglob("*.py") if "distributed" not in path.relative_to(package).parts]
    assert len(files) > 50
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("torch.distributed") for name in names), path
    program = """
import sys, torch
from kpop_kernels.optim import KPOP
model = torch.nn.Linear(4, 3)
optimizer = KPOP(model.named_parameters())
optimizer.attach(model)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
KPOP(model.named_parameters()).load_state_dict(optimizer.state_dict())
assert not [name for name in sys.modules if name.startswith("kpop_kernels.distributed")]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_process_groups_sharding_does_nothing():
    params = parameters(SHAPES)
    optimizer = make("Muon", params)
    assert shard(optimizer) is optimizer
    assert not optimizer._exchange.spans_ranks
    set_gradients(params, 1)
    optimizer.step()
    assert all("momentum_buffer" in optimizer.state[p] or "exp_avg" in optimizer.state[p] for p in params)
