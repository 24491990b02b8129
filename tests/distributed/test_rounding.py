"""Stochastic rounding of a DTensor's shards, compiled too: where random numbers of the device fail or differ."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from kpop_kernels import quantize_int8, stochastic_round_bf16
from tests.distributed.cluster import Cluster

ROWS, COLUMNS = 8, 64
KEY = {"seed": 1, "step": 2, "stream": 3}


def _whole() -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0))


def _round(local: torch.Tensor, offset: int) -> tuple[torch.Tensor, ...]:
    codes, scales, zero_points = quantize_int8(local, block_size=32, offset=offset, **KEY)
    return codes, scales, zero_points, stochastic_round_bf16(local, offset=offset, **KEY)


def _rounded_shard(compiled: bool) -> list[list[float]]:
    world, rank = dist.get_world_size(), dist.get_rank()
    x = distribute_tensor(_whole(), init_device_mesh("cpu", (world,)), [Shard(0)])
    function = torch.compile(_round, fullgraph=True, backend="aot_eager") if compiled else _round
    results = function(x.to_local(), rank * x.to_local().numel())
    return [result.float().flatten().tolist() for result in results]


def _refusals() -> list[str]:
    x = distribute_tensor(_whole(), init_device_mesh("cpu", (dist.get_world_size(),)), [Shard(0)])
    sentences = []
    for function in (quantize_int8, stochastic_round_bf16):
        with pytest.raises(NotImplementedError) as raised:
            function(x, **KEY)
        sentences.append(str(raised.value))
    return sentences


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("world", [2, 4])
def test_shards_of_a_dtensor_round_like_the_whole(cluster: Cluster, world, compiled):
    runs = cluster.run(world, _rounded_shard, compiled)
    together = [[number for shard in parts for number in shard] for parts in zip(*runs, strict=True)]
    assert together == [result.float().flatten().tolist() for result in _round(_whole(), 0)]


def test_a_dtensor_itself_is_refused_and_not_rounded_as_if_it_were_whole(cluster: Cluster):
    for sentences in cluster.run(2, _refusals):
        assert all("kpop." in sentence for sentence in sentences)
