"""The simulated plan: its arithmetic by hand, and against what ranks really send."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from kpop_kernels.distributed.__main__ import main
from kpop_kernels.distributed._simulate import MODELS, Rates, Transformer, simulate
from kpop_kernels.optim import KPOP, SOAP, Clean, Muon, OnlineKLShampoo, Shampoo
from tests.distributed.cluster import Cluster


def _meta(*shape: int, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, dtype=dtype, device="meta"))


def test_two_matrices_on_two_ranks_by_hand():
    plan = simulate(Muon([_meta(8, 4), _meta(8, 4)]), 2)
    step = 10 * 32 + 5 * (4 * 8 * 4 * 4 + 2 * 4**3)
    assert plan.loads.work == [step, step]
    assert plan.loads.memory == [128, 128]
    # Each rank sends half of one matrix's gradient and values, and half of the other's new values.
    assert plan.sent == plan.received == [3 * 64, 3 * 64]
    rates = Rates(flops=1e3, bandwidth=1e2, latency=1.0)
    assert plan.compute_seconds(rates) == pytest.approx(step / 1e3)
    assert plan.communicate_seconds(rates) == pytest.approx(192 / 1e2 + 2 * 1.0)


ADAM, ROTATIONS, CUBES = 20 * 32, 6 * (8 + 4) * 32, 8**3 + 4**3


@pytest.mark.parametrize(
    "optimizer, options, work",
    (
        (KPOP, {"precondition_frequency": 10}, ADAM + ROTATIONS + CUBES),
        (SOAP, {"precondition_frequency": 5}, ADAM + ROTATIONS + 2 * CUBES),
        (Shampoo, {"precondition_frequency": 20}, ADAM + ROTATIONS + CUBES / 2),
        (OnlineKLShampoo, {}, ADAM + ROTATIONS + 2 * 27 * CUBES),
        (OnlineKLShampoo, {"method": "eigh"}, ADAM + ROTATIONS + 10 * CUBES),
        (SOAP, {"rules": {"*": "adam"}}, ADAM),
        (OnlineKLShampoo, {"rules": {"*": "right"}}, ADAM + 6 * 4 * 32 + 2 * 27 * 4**3),
        (
            Clean,
            {"rank": 2, "oversampling": 1, "power_iterations": 1, "precondition_frequency": 10},
            40 * 32 + 16 * 32 * 2 + 2 * 3 * (4 * 32 * 3 + 4 * 12 * 3**2) / 10,
        ),
    ),
)
def test_the_work_of_a_matrix_by_hand(optimizer, options, work):
    plan = simulate(optimizer([_meta(8, 4)], **options), 1)
    assert plan.loads.work == [pytest.approx(work)]


def test_what_is_updated_in_parts_is_not_sent():
    plan = simulate(SOAP([_meta(64, 8), _meta(12)], rules={"#0": "adam"}), 4)
    assert plan.sent == plan.received == [0.0] * 4
    assert plan.loads.memory == [2 * 4 * (64 * 8 + 12) / 4] * 4
    assert plan.work_imbalance == 1.0


def test_replicated_parameters_are_gathered_in_equal_pieces():
    plan = simulate(Muon([_meta(8, 4), _meta(8, 4), _meta(8, 4)]), 2, "ddp")
    assert plan.sent == plan.received == [256, 256]
    assert plan.owners == 2 and plan.work_imbalance == pytest.approx(4 / 3)


def test_an_empty_shard_is_not_sent():
    plan = simulate(Muon([_meta(5, 4)]), 4)
    owner = plan.loads.work.index(max(plan.loads.work))
    shards = [32, 32, 16, 0]
    assert plan.received[owner] == 2 * (80 - shards[owner])
    assert plan.sent[3 if owner != 3 else 0] in (0, 64)
    assert sum(plan.sent) == sum(plan.received) == 3 * (80 - shards[owner])


@pytest.mark.parametrize("name, billions", (("1.3B", 1.3), ("13B", 13.0)))
def test_models_have_the_size_of_their_names(name, billions):
    count = sum(parameter.numel() for _, parameter in MODELS[name].parameters())
    assert count / 1e9 == pytest.approx(billions, rel=0.04)


def test_memory_is_the_state_and_work_the_cost_however_many_ranks():
    optimizer = KPOP(list(Transformer(32, 3, 64, 128).parameters()), rules={"embedding": "adam"})
    plans = {ranks: simulate(optimizer, ranks) for ranks in (1, 3, 8)}
    for plan in plans.values():
        assert sum(plan.loads.memory) == pytest.approx(sum(plans[1].loads.memory))
        assert sum(plan.loads.work) == pytest.approx(sum(plans[1].loads.work))
        assert math.isclose(sum(plan.sent), sum(plan.received))
    assert sum(plans[1].sent) == 0


def test_the_command_prints_a_row_for_every_plan(capsys):
    assert main(["--models", "1.3B", "--ranks", "8", "64", "--bandwidth", "10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines if line.startswith("1.3B")]
    assert [row[1] for row in rows] == ["8", "64"]
    plan = simulate(KPOP(list(MODELS["1.3B"].parameters()), rules={"embedding": "adam", "head": "adam"}), 64)
    assert rows[1][7:9] == [f"{max(plan.sent) / 1e6:.0f}", f"{max(plan.received) / 1e6:.0f}"]
    assert rows[1][10] == f"{plan.communicate_seconds(Rates(bandwidth=1e10)) * 1e3:.1f}"


@pytest.mark.parametrize("arguments", (["--ranks", "0"], ["--models", "7B"], ["--bandwidth", "-1"]))
def test_bad_arguments_are_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert "error" in capsys.readouterr().err


def _bytes_sent(shapes: list[tuple[int, int]]) -> tuple[int, int, float]:
    """Return the bytes that this rank's step sends to and receives from others, and its work."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    from kpop_kernels.distributed._transport import Transport

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    params = [
        nn.Parameter(distribute_tensor(torch.ones(shape), mesh, [Shard(0)], src_data_rank=None))
        for shape in shapes
    ]
    optimizer = Muon(params)
    rank, counts, move = dist.get_rank(), [0, 0], Transport.move

    def counted(self, outgoing, expected, device):
        counts[0] += sum(
            t.numel() * t.element_size() for r, ts in enumerate(outgoing) if r != rank for t in ts
        )
        counts[1] += sum(
            math.prod(s) * d.itemsize for r, fs in enumerate(expected) if r != rank for s, d in fs
        )
        return move(self, outgoing, expected, device)

    Transport.move = counted
    try:
        for parameter in params:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    finally:
        Transport.move = move
    return counts[0], counts[1], optimizer._exchange.loads.work[rank]


def test_the_plan_is_what_ranks_do(cluster: Cluster):
    shapes = [(24, 8), (5, 8), (16, 16), (1, 8), (40, 4)]
    plan = simulate(Muon([_meta(*shape) for shape in shapes]), 4)
    sent, received, work = zip(*cluster.run(4, _bytes_sent, shapes), strict=True)
    assert list(sent) == plan.sent and list(received) == plan.received and list(work) == plan.loads.work


def test_the_page_shows_what_the_command_prints(capsys):
    main([])
    page = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text()
    assert capsys.readouterr().out.strip() in page
