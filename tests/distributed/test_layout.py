"""What each rank holds of a DTensor: as DTensor itself says."""

import torch
from torch import nn

from tests.distributed.cluster import Cluster


def _blocks_hold_what_ranks_hold() -> int:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    from kpop_kernels.distributed._layout import layout_of, part

    ranks, rank, checked = list(range(4)), dist.get_rank(), 0
    flat = init_device_mesh("cpu", (4,))
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))

    def check(tensor, whole):
        layout = layout_of(tensor, "a parameter", ranks)
        torch.testing.assert_close(part(whole, layout.blocks[rank]), tensor.to_local(), rtol=0, atol=0)

    cases = [(flat, [p]) for p in (Shard(0), Shard(1), Replicate())]
    cases += [
        (square, [a, b]) for a in (Shard(0), Shard(1), Replicate()) for b in (Shard(0), Shard(1), Replicate())
    ]
    for shape in ((5, 6), (3, 1), (8, 4), (1, 9), (0, 2)):
        whole = torch.arange(float(torch.Size(shape).numel())).view(shape)
        for mesh, placements in cases:
            check(distribute_tensor(whole, mesh, placements, src_data_rank=None), whole)
            checked += 1

    # FSDP cuts what tensor parallelism has cut: the order of the cuts is not that of the mesh.
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10), nn.Linear(10, 7))
    wholes = [p.detach().clone() for p in model.parameters()]
    parallelize_module(model, square["tensor"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    fully_shard(model, mesh=square["data"])
    for tensor, whole in zip(model.parameters(), wholes, strict=True):
        check(tensor, whole)
        checked += 1
    return checked


def test_blocks_hold_what_ranks_hold(cluster: Cluster):
    assert cluster.run(4, _blocks_hold_what_ranks_hold) == [64] * 4


def _refusals() -> list[str]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

    from kpop_kernels.distributed import shard
    from kpop_kernels.optim import Muon

    def message(run) -> str:
        try:
            run()
        except ValueError as error:
            return str(error)
        return "nothing"

    mesh = init_device_mesh("cpu", (2,))
    partial = nn.Parameter(DTensor.from_local(torch.ones(2, 2), mesh, [Partial()]))
    whole = nn.Parameter(torch.ones(2, 2))
    stepped = Muon([whole])
    whole.grad = torch.ones(2, 2)
    stepped.step()
    square = init_device_mesh("cpu", (1, 2))
    other = nn.Parameter(
        distribute_tensor(torch.ones(2, 2), square, [Shard(0), Shard(1)], src_data_rank=None)
    )
    both = Muon([other])
    both.init_state()
    return [
        message(Muon([partial]).init_state),
        message(lambda: shard(stepped)),
        message(lambda: shard(Muon([whole]), comm_dtype=torch.float32)),
    ]


def test_what_is_not_served_is_refused(cluster: Cluster):
    for placement, stepped, dtype in cluster.run(2, _refusals):
        assert "Muon: #0 has the placement" in placement and "Shard and Replicate are" in placement
        assert "has taken a step" in stepped
        assert "comm_dtype is torch.float32" in dtype
