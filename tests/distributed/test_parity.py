"""Training on several ranks is training in one process, bit for bit, whatever lies where."""

from collections.abc import Callable, Sequence
from functools import cache
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.optim import Optimizer

from kpop_kernels.distributed import shard
from kpop_kernels.distributed._layout import layout_of, part, rows
from tests.distributed.cluster import Cluster
from tests.distributed.parity import GRADIENTS, OURS, SHAPES, alone, make, replicated, sharded, usual
from tests.optim.conventions.workload import gradient, parameters

REFERENCES = cache(alone)
WORLDS = (1, 2, 4)
SAMPLES = ("KPOP", "QClean", "Muon")
"""A matrix method, one with blocks of 8 bits, and one that computes many matrices in a call."""


def test_the_shapes_are_what_is_promised():
    assert (5, 3) in SHAPES and (1, 7) in SHAPES
    starts = [block[0] for block in rows((5, 3), 4)]
    assert starts == [(0, 2), (2, 4), (4, 5), (5, 5)]  # the last rank's shard is empty
    some = parameters(SHAPES)
    assert all(usual(step, 8, some[8]) is None for step in range(1, 21))  # never used
    assert [usual(step, 0, some[0]) is None for step in (6, 7, 11, 12)] == [
        False,
        True,
        True,
        False,
    ]  # frozen
    with mock.patch.object(dist, "get_rank", return_value=0):
        left_out = [i for i, p in enumerate(some) if GRADIENTS["one rank without"](3, i, p) is None]
    assert left_out == [0, 2, 4, 6, 8, 10]


def assert_equal(runs: list[tuple[list[Tensor], dict]], expected: list[Tensor]) -> None:
    for rank, (values, _) in enumerate(runs):
        for index, (value, wanted) in enumerate(zip(values, expected, strict=True)):
            assert torch.equal(value, wanted), f"rank {rank}, parameter {index} of shape {SHAPES[index]}"


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("world", WORLDS)
def test_replicated_parameters(cluster: Cluster, name, world):
    assert_equal(cluster.run(world, replicated, name), REFERENCES(name))


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("world", WORLDS)
def test_sharded_parameters(cluster: Cluster, name, world):
    assert_equal(cluster.run(world, sharded, name, "FSDP2"), REFERENCES(name))


@pytest.mark.parametrize("kind", ("HSDP", "tensor parallel"))
@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("world", WORLDS)
def test_meshes_of_two_dimensions(cluster: Cluster, name, kind, world):
    assert_equal(cluster.run(world, sharded, name, kind), REFERENCES(name))


@pytest.mark.parametrize("kind", ("FSDP2 by columns", "FSDP2 but for some"))
@pytest.mark.parametrize("name", SAMPLES)
def test_other_placements(cluster: Cluster, name, kind):
    assert_equal(cluster.run(4, sharded, name, kind), REFERENCES(name))


def _tensor_parallel_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.Linear(10, 7))


_TENSOR_PARALLEL = [torch.empty(shape) for shape in ((10, 6), (10,), (7, 10), (7,))]
"""What the model's parameters look like."""


def _steps_of(optimizer: Optimizer, params: Sequence[Tensor], lay_out: Callable[..., Tensor]) -> None:
    for step in range(1, 11):
        for index, (parameter, like) in enumerate(zip(params, _TENSOR_PARALLEL, strict=True)):
            parameter.grad = lay_out(parameter, gradient(like, step, index))
        optimizer.step()


def _fsdp_of_tensor_parallel() -> dict[str, list[Tensor]]:
    """Parameters that tensor parallelism has cut and FSDP cuts again, after training with each optimizer."""
    mesh, results = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor")), {}

    def lay_out(parameter: Tensor, G: Tensor) -> Tensor:
        assert isinstance(parameter, DTensor)
        block = layout_of(parameter, "a parameter", range(4)).blocks[dist.get_rank()]
        return DTensor.from_local(
            part(G, block), parameter.device_mesh, parameter.placements, shape=G.shape, stride=G.stride()
        )

    for name in OURS:
        model = _tensor_parallel_model()
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
        fully_shard(model, mesh=mesh["data"])
        _steps_of(OURS[name].make(model.parameters()), list(model.parameters()), lay_out)
        results[name] = [p.full_tensor().detach() for p in model.parameters()]
    return results


def test_fsdp_of_tensor_parallel_layers(cluster: Cluster):
    runs = cluster.run(4, _fsdp_of_tensor_parallel)
    for name in OURS:
        model = _tensor_parallel_model()
        _steps_of(OURS[name].make(model.parameters()), list(model.parameters()), lambda _, G: G)
        for run in runs:
            assert all(map(torch.equal, run[name], model.parameters())), name


@pytest.mark.parametrize("name", SAMPLES)
def test_parameters_in_bfloat16(cluster: Cluster, name):
    expected = alone(name, "usual", torch.bfloat16)
    assert_equal(cluster.run(4, replicated, name, "usual", torch.bfloat16), expected)
    assert_equal(cluster.run(4, sharded, name, "FSDP2", "usual", torch.bfloat16), expected)


@pytest.mark.parametrize("name", OURS)
def test_a_shard_without_a_gradient_has_one_of_zeros(cluster: Cluster, name):
    runs = cluster.run(4, sharded, name, "FSDP2", "one rank without")
    assert_equal(runs, alone(name, "rows of rank 0 of 4 are zero"))


@pytest.mark.parametrize("name", OURS)
def test_a_replica_without_a_gradient_takes_anothers(cluster: Cluster, name):
    assert_equal(cluster.run(4, replicated, name, "one rank without"), REFERENCES(name))


@pytest.mark.parametrize("kind", ("replicated", "FSDP2"))
def test_one_rank_with_nan_leaves_the_parameter_on_all(cluster: Cluster, kind):
    train = replicated if kind == "replicated" else sharded
    runs = cluster.run(2, train, "SOAP", *(() if kind == "replicated" else (kind,)), "NaN on rank 1")
    assert_equal(runs, alone("SOAP", "NaN"))
    assert [facts["skipped"] for _, facts in runs] == [1, 1]


@pytest.mark.parametrize(
    "name, kind", (*((name, "replicated") for name in SAMPLES), ("Muon", "FSDP2"), ("QClean", "HSDP"))
)
def test_updates_may_travel_in_bfloat16(cluster: Cluster, name, kind):
    expected = REFERENCES(name)
    train, first = (replicated, ()) if kind == "replicated" else (sharded, (kind,))
    runs = cluster.run(4, train, name, *first, "usual", torch.float32, torch.bfloat16)
    for values, _ in runs[1:]:
        assert all(map(torch.equal, values, runs[0][0]))
    start = [value.detach() for value in parameters(SHAPES)]
    moved = 0
    for value, wanted, first in zip(runs[0][0], expected, start, strict=True):
        # Twenty updates, each rounded to 8 bits; later ones react to what earlier ones did.
        assert (value - wanted).norm() <= 2**-5 * (wanted - first).norm() + 1e-12
        moved += not torch.equal(value, wanted)
    assert moved > 5


def _with_a_late_group(shared: bool) -> list[Tensor]:
    params = parameters(SHAPES)
    optimizer = make("KPOP", params[:4])
    if shared:
        shard(optimizer)
    for step in range(1, 9):
        if step == 4:
            optimizer.add_param_group({"params": params[4:], "lr": 2.0**-5})
        for index, parameter in enumerate(params):
            parameter.grad = usual(step, index, parameter)
        optimizer.step()
    return [parameter.detach() for parameter in params]


def test_a_group_may_come_late(cluster: Cluster):
    expected = _with_a_late_group(False)
    for values in cluster.run(2, _with_a_late_group, True):
        assert all(map(torch.equal, values, expected))


def test_a_stand_in_that_is_not_whole_would_be_seen(cluster: Cluster):
    values = cluster.run(2, _with_shards_as_matrices)[0]
    assert any(not torch.equal(a, b) for a, b in zip(values, REFERENCES("Muon"), strict=True))


def _with_shards_as_matrices() -> list[Tensor]:
    """Each rank orthogonalizes its shard: what an optimizer that ignored placements would do."""
    from kpop_kernels.optim import Muon
    from tests.distributed.parity import distributed

    whole = parameters(SHAPES)
    mine = [torch.nn.Parameter(distributed(p, "FSDP2").to_local()) for p in whole]
    optimizer = make("Muon", mine)
    assert isinstance(optimizer, Muon) and dist.get_world_size() == 2
    for step in range(1, 21):
        for index, (parameter, like) in enumerate(zip(mine, whole, strict=True)):
            G = usual(step, index, like)
            parameter.grad = (
                None if G is None else distributed(gradient(like, step, index), "FSDP2").to_local()
            )
        optimizer.step()
    pieces: list[list[Tensor]] = [[], []]
    dist.all_gather_object(pieces, [p.detach() for p in mine])
    return [torch.cat([a, b]) for a, b in zip(*pieces, strict=True)]
