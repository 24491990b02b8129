"""KPOP's second moments over all ranks are those of the whole batch."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from kpop_kernels.distributed import shard
from kpop_kernels.optim import KPOP
from tests.distributed.cluster import Cluster

STEPS = 6


class Net(nn.Module):
    """Two layers that every sample passes, and one that only some batches do."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 24)
        self.sometimes = nn.Linear(24, 24)
        self.last = nn.Linear(24, 5)

    def forward(self, x: Tensor, detour: bool) -> Tensor:
        h = self.first(x).tanh()
        return self.last(self.sometimes(h).tanh() if detour else h)


def _train(
    kind: str | None,
    *,
    accumulate: int = 1,
    dropped: bool = False,
    one_takes_the_detour: bool = False,
    frozen: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Train on equal parts of each batch; return parameters, the factors that are here, and what left early."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    try:
        world, rank = (1, 0) if kind is None else (dist.get_world_size(), dist.get_rank())
        model = Net()
        run: nn.Module = model
        if kind == "DDP":
            run = DistributedDataParallel(model, find_unused_parameters=True)
        elif kind == "FSDP2":
            for layer in model.children():
                fully_shard(layer)
            fully_shard(model)
        center = options.pop("center", False)
        optimizer = KPOP(model.named_parameters(), lr=1e-2, precondition_frequency=2, **options)
        if kind == "DDP":
            shard(optimizer)
        optimizer.attach(model, center=center)
        data, early, sizes = torch.Generator().manual_seed(1), 0, set()
        for step in range(STEPS):
            if frozen:
                model.last.weight.requires_grad_(step not in (2, 3))
            for dropping in (True, False) if dropped and step == 2 else (False,):
                for _ in range(accumulate):
                    x, y = torch.randn(64, 12, generator=data), torch.randn(64, 5, generator=data)
                    parts = zip(x.chunk(world), y.chunk(world), strict=True)
                    x, y = list(parts)[rank]
                    detour = not one_takes_the_detour or rank == 0
                    ((run(x, detour) - y).square().mean() / accumulate).backward()
                if dropping:
                    optimizer.zero_grad()
            if kind is not None and optimizer._exchange._statistics is not None:
                flights = optimizer._exchange._statistics._flights
                early += len(flights)
                sizes |= {flight.buffer.numel() for flight in flights}
            optimizer.step()
            optimizer.zero_grad()
    finally:
        torch.set_default_dtype(torch.float32)
    factors = {
        (name, side): optimizer.state[parameter][side]
        for name, parameter in model.named_parameters()
        for side in ("L", "R")
        if side in optimizer.state[parameter]
    }
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return {"values": [p.detach() for p in whole], "factors": factors, "early": early, "sizes": sizes}


def _train_with(kind: str | None, options: dict[str, Any]) -> dict[str, Any]:
    return _train(kind, **options)


OPTIONS = {
    "rows": {"factor_norm": "rows"},
    "trace": {"factor_norm": "trace"},
    "centered": {"center": True, "factor_norm": "rows"},
    "accumulated": {"accumulate": 2, "factor_norm": "rows"},
    "a batch dropped": {"dropped": True, "factor_norm": "rows"},
}


@pytest.mark.parametrize("kind", ("DDP", "FSDP2"))
@pytest.mark.parametrize("world, options", [*((2, name) for name in OPTIONS), (4, "rows")])
def test_factors_are_those_of_the_whole_batch(cluster: Cluster, kind, world, options):
    expected = _train(None, **OPTIONS[options])
    runs = cluster.run(world, _train_with, kind, OPTIONS[options])
    factors = {key: factor for run in runs for key, factor in run["factors"].items()}
    assert factors.keys() == expected["factors"].keys()
    for key, factor in factors.items():
        torch.testing.assert_close(factor, expected["factors"][key], rtol=1e-10, atol=1e-14, msg=str(key))
    for run in runs:
        torch.testing.assert_close(run["values"], expected["values"], rtol=1e-9, atol=1e-12)
        # After the first step everything but what accumulates leaves during the backward pass.
        assert run["early"] == 3 * (STEPS - 1)
        # The triangles of both sides, a count of rows for each, in two digits, and a sum if it is centered.
        sides = ((12, 24), (24, 24), (24, 5))
        sums = int(OPTIONS[options].get("center", False))
        assert run["sizes"] == {sum(n * (n + 1) // 2 + n * sums + 2 for n in pair) for pair in sides}


@pytest.mark.parametrize("kind", ("DDP", "FSDP2"))
def test_a_layer_may_be_frozen_for_a_while(cluster: Cluster, kind):
    expected = _train(None, frozen=True, factor_norm="rows")
    for run in cluster.run(2, _train_with, kind, {"frozen": True, "factor_norm": "rows"}):
        torch.testing.assert_close(run["values"], expected["values"], rtol=1e-9, atol=1e-12)
        for key, factor in run["factors"].items():
            torch.testing.assert_close(factor, expected["factors"][key], rtol=1e-10, atol=1e-14)
    free = _train(None, factor_norm="rows")
    assert not all(map(torch.equal, free["values"], expected["values"]))


def test_a_layer_that_one_rank_does_not_pass_stops_nobody(cluster: Cluster):
    runs = cluster.run(2, _train_with, "DDP", {"one_takes_the_detour": True})
    assert all(map(torch.equal, runs[0]["values"], runs[1]["values"]))
    factors = {key: factor for run in runs for key, factor in run["factors"].items()}
    assert all(factor.any() for factor in factors.values())


def _tensor_parallel() -> str:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    model = nn.Sequential(nn.Linear(6, 8, bias=False))
    parallelize_module(model, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel()})
    optimizer = KPOP(model.named_parameters())
    optimizer.attach(model)
    try:
        model(torch.ones(3, 6)).sum().backward()
    except RuntimeError as error:
        return str(error)
    return "nothing"


def test_layers_that_see_a_part_are_refused(cluster: Cluster):
    for message in cluster.run(2, _tensor_parallel):
        assert "KPOP: the layer of 0.weight sees its inputs or outputs in parts" in message
