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
from tests.distributed.cluster import TIMEOUT, WATCHDOG, Cluster, Hang
from tests.distributed.parity import OURS, SHAPES, distributed, make, usual
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
        ranks.run(3, torch.distributed.get_rank)  # processes take their time to start
        started = time.monotonic()
        with pytest.raises(AssertionError, match="rank 1: the process has died") as raised:
            ranks.run(3, _dies_in_the_third_step, kind)
        assert time.monotonic() - started < TIMEOUT
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


def _sleeps() -> None:
    if torch.distributed.get_rank() == 1:
        time.sleep(600)


def test_the_watchdog_ends_a_rank_that_does_not_return(monkeypatch):
    assert WATCHDOG == 60
    monkeypatch.setattr("tests.distributed.cluster.WATCHDOG", 5.0)
    ranks = Cluster()
    try:
        with pytest.raises(Hang, match=r"ranks \[1\] have not returned"):
            ranks.run(2, _sleeps)
        assert ranks.run(2, torch.distributed.get_rank) == [0, 1]  # others take the place of the killed ones
    finally:
        ranks.close()


def _mentions_of_torch_distributed(tree: ast.AST) -> list[str]:
    """What a module imports, or reaches through torch, of torch.distributed."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.append(f"{node.value.id}.{node.attr}")
    return [name for name in names if name.startswith("torch.distributed")]


@pytest.mark.parametrize(
    "source",
    (
        "import torch.distributed",
        "from torch import distributed",
        "from torch.distributed.tensor import DTensor",
        "torch.distributed.barrier()",
    ),
)
def test_mentions_are_found(source):
    assert _mentions_of_torch_distributed(ast.parse(source))
    assert not _mentions_of_torch_distributed(ast.parse("from torch.nn import Linear\ntorch.ones(2)"))


def test_nothing_outside_this_folder_mentions_torch_distributed():
    package = Path(kpop_kernels.__file__).parent
    files = [path for path in package.rglob("*.py") if "distributed" not in path.relative_to(package).parts]
    assert len(files) > 50
    for path in files:
        assert not _mentions_of_torch_distributed(ast.parse(path.read_text())), path


ONE_PROCESS = """
import sys, torch
from kpop_kernels import optim
for name in sys.argv[1:]:
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 3))
    optimizer = getattr(optim, name)(model.named_parameters())
    if name == "KPOP":
        optimizer.attach(model)
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    getattr(optim, name)(model.named_parameters()).load_state_dict(optimizer.state_dict())
    optimizer.explain()
loaded = [name for name in sys.modules if name.startswith("kpop_kernels.")]
assert "kpop_kernels.optim" in loaded
assert not [name for name in loaded if name.startswith("kpop_kernels.distributed")]
"""


def test_one_process_loads_nothing_of_this_folder():
    """torch itself loads torch.distributed; that we do not is that no module which uses it is loaded."""
    subprocess.run([sys.executable, "-c", ONE_PROCESS, *OURS], check=True)


def test_without_process_groups_sharding_does_nothing():
    params = parameters(SHAPES)
    optimizer = make("Muon", params)
    assert shard(optimizer) is optimizer
    assert not optimizer._exchange.spans_ranks
    set_gradients(params, 1)
    optimizer.step()
    assert all("momentum_buffer" in optimizer.state[p] or "exp_avg" in optimizer.state[p] for p in params)
