"""What each rank keeps and does for the demo's model."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.optim import Optimizer

from kpop_kernels.distributed import shard
from kpop_kernels.distributed._layout import Layout, among_replicas, rows
from kpop_kernels.distributed._ownership import Loads, Task
from kpop_kernels.distributed._planner import Demand, places
from kpop_kernels.optim import rules_of, state_bytes
from tests.distributed.cluster import Cluster
from tests.distributed.parity import OURS, mesh_of


def _model() -> nn.Module:
    sys.path.append(str(Path(__file__).parents[2] / "examples"))
    from language_model import LanguageModel, ModelConfig

    return LanguageModel(ModelConfig())


def _optimizer(name: str, model: nn.Module, kind: str) -> Optimizer:
    """An optimizer of all matrices, or one that leaves embedding and head to Adam."""
    rules = rules_of(model) if "rules" in kind else None
    return OURS[name].cls(model.named_parameters(), rules=rules)


def _kept(kind: str) -> dict[str, tuple[int, float]]:
    """Bytes of state and imbalance of work, optimizer by optimizer."""
    results, model = {}, _model()
    if "replicated" not in kind:
        fully_shard(model, mesh=mesh_of(kind.partition(",")[0]))
    for name in OURS:
        optimizer = _optimizer(name, model, kind)
        if "replicated" in kind:
            shard(optimizer)
        optimizer.init_state()
        results[name] = state_bytes(optimizer), optimizer._exchange.work_imbalance
    return results


@pytest.mark.parametrize(
    "kind", ("replicated", "FSDP2", "HSDP", "replicated, rules", "FSDP2, rules", "HSDP, rules")
)
def test_each_rank_keeps_its_share_and_does_its_share(cluster: Cluster, kind):
    totals, model = {}, _model()
    for name in OURS:
        optimizer = _optimizer(name, model, kind)
        optimizer.init_state()
        totals[name] = state_bytes(optimizer)
    assert len(totals) == 7
    for world in (2, 4):
        ranks = cluster.run(world, _kept, kind)
        for name, total in totals.items():
            kept, imbalances = zip(*(rank[name] for rank in ranks), strict=True)
            assert sum(kept) >= total, name
            assert max(kept) <= 1.1 * total / world, name
            assert 1 <= min(imbalances) == max(imbalances) <= 1.3, name


def _copied() -> str:
    import copy

    from kpop_kernels.optim import SOAP

    optimizer = shard(SOAP([nn.Parameter(torch.ones(3, 2))]))
    try:
        copy.deepcopy(optimizer)
    except RuntimeError as error:
        return str(error)
    return "nothing"


def test_what_is_shared_is_not_copied(cluster: Cluster):
    assert (
        cluster.run(2, _copied)
        == ["SOAP: an optimizer shared among ranks cannot be copied; use its state_dict"] * 2
    )


@pytest.mark.parametrize(
    "shape, replicated, granule, in_parts",
    (
        ((64, 80), False, 256, True),
        ((10, 410), False, 256, False),  # shards of 3 rows do not begin at multiples of 256
        ((10, 410), False, 1, True),
        ((64, 80), True, 256, True),
        ((10, 410), True, 256, True),  # rows are dealt out 128 at a time: the first rank has all
        ((9,), True, 1, False),
        ((9,), False, 1, True),
    ),
)
def test_elements_of_a_block_stay_together(shape, replicated, granule, in_parts):
    whole = tuple((0, size) for size in shape)
    layout = Layout(shape, (whole,) * 4 if replicated else tuple(rows(shape, 4)))
    parameter = torch.empty(shape, device="meta")
    place = places({parameter: Demand(layout, granule, Task(1, 1))}, Loads.none(4))[parameter]
    assert (place.owner is None) == in_parts
    if in_parts:
        starts = [place.layout.flat_range(rank)[0] for rank in range(4)]
        assert all(start % granule == 0 for start in starts)


def test_replicas_of_a_shard_share_it():
    """Two shards of 5 rows, each on two of four ranks."""
    halves = (((0, 5), (0, 1024)), ((5, 10), (0, 1024)))
    layout = Layout((10, 1024), halves * 2)
    place = places(
        {torch.empty(10, 1024): Demand(layout, 1, Task(1, 80.0))}, loads := Loads.none(4)
    ).popitem()[1]
    assert [block[0] for block in place.layout.blocks] == [(0, 3), (5, 8), (3, 5), (8, 10)]
    assert loads.memory == [24.0, 24.0, 16.0, 16.0]
    assert place.owner is None and place.travels and place.replicas(1) == [1, 3]
    small = places({torch.empty(2, 8): Demand(Layout((2, 8), layout.blocks), 1, Task(1, 1))}, Loads.none(4))
    assert not small.popitem()[1].travels  # not worth a message
    assert [block[0] for block in among_replicas(layout, 4).blocks] == [(0, 4), (5, 9), (4, 5), (9, 10)]
