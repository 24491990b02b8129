"""Checkpoints of some number of ranks, resumed on any other, through torch.distributed.checkpoint."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from kpop_kernels.distributed import shard
from tests.distributed.cluster import Cluster
from tests.distributed.parity import OURS, distributed, make
from tests.optim.conventions.workload import assert_identical, gradient, parameters

SAVED_AFTER, LAST = 5, 10
SHAPES = ((16, 12), (5, 3), (1, 7), (9,), (3, 6, 4), (64, 80))


class Run:
    """A model of given parameters, its optimizer, and where they lie: on one process (None) or as a mesh says."""

    def __init__(self, name: str, kind: str | None, *, replicate: bool = True) -> None:
        self.kind = kind
        self.whole = parameters(SHAPES)
        laid_out = self.whole if kind is None else [nn.Parameter(distributed(p, kind)) for p in self.whole]
        self.model = nn.Module()
        self.model.layers = nn.ParameterList(laid_out)
        self.optimizer: Optimizer = make(name, list(self.model.parameters()))
        if kind is None and replicate:
            shard(self.optimizer)

    def steps(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            for index, (parameter, like) in enumerate(zip(self.model.layers, self.whole, strict=True)):
                G = gradient(like, step, index)
                parameter.grad = G if self.kind is None else distributed(G, self.kind)
            self.optimizer.step()

    def values(self) -> list[Tensor]:
        return [_whole(p).detach().clone() for p in self.model.layers]

    def save(self, path: str) -> None:
        state = {
            "model": get_model_state_dict(self.model),
            "optimizer": get_optimizer_state_dict(self.model, self.optimizer),
        }
        dcp.save(state, checkpoint_id=path)

    def load(self, path: str) -> None:
        state: dict[str, Any] = {
            "model": get_model_state_dict(self.model),
            "optimizer": get_optimizer_state_dict(self.model, self.optimizer),
        }
        dcp.load(state, checkpoint_id=path)
        set_model_state_dict(self.model, state["model"])
        set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"])


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _saved(name: str, kind: str | None, path: str) -> list[Tensor]:
    run = Run(name, kind)
    run.steps(1, SAVED_AFTER)
    run.save(path)
    run.steps(SAVED_AFTER + 1, LAST)
    return run.values()


def _resumed(name: str, kind: str | None, path: str) -> list[Tensor]:
    run = Run(name, kind)
    before = run.values()
    run.load(path)
    assert not all(map(torch.equal, before, run.values()))
    run.steps(SAVED_AFTER + 1, LAST)
    return run.values()


def _resumed_alone(name: str, path: str) -> list[Tensor]:
    run = Run(name, None, replicate=False)
    run.load(path)
    run.steps(SAVED_AFTER + 1, LAST)
    return run.values()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # said whenever one process loads
@pytest.mark.parametrize("kind", (None, "FSDP2"), ids=("replicated", "FSDP2"))
@pytest.mark.parametrize("name", OURS)
def test_a_resumed_run_is_the_uninterrupted_one(cluster: Cluster, tmp_path: Path, name, kind):
    wanted = cluster.run(2, _saved, name, kind, str(tmp_path))[0]
    for world in (2, 4):
        for values in cluster.run(world, _resumed, name, kind, str(tmp_path)):
            assert_identical(values, wanted)
    assert_identical(_resumed_alone(name, str(tmp_path)), wanted)


@pytest.mark.parametrize("kind", ("HSDP", "FSDP2 by columns", "tensor parallel"))
def test_other_meshes_resume(cluster: Cluster, tmp_path: Path, kind):
    wanted = cluster.run(4, _saved, "QClean", kind, str(tmp_path))[0]
    for values in cluster.run(4, _resumed, "QClean", kind, str(tmp_path)):
        assert_identical(values, wanted)


def test_replicated_and_sharded_runs_read_each_others(cluster: Cluster, tmp_path: Path):
    wanted = cluster.run(2, _saved, "QClean", None, str(tmp_path))[0]
    for values in cluster.run(4, _resumed, "QClean", "FSDP2", str(tmp_path)):
        assert_identical(values, wanted)


def _full_state_dict(name: str, kind: str | None) -> tuple[dict[str, Any], str]:
    run = Run(name, kind)
    run.steps(1, SAVED_AFTER)
    options = StateDictOptions(full_state_dict=True)
    state = get_optimizer_state_dict(run.model, run.optimizer, options=options)["state"]
    return state, run.optimizer.explain()


@pytest.mark.parametrize("kind", (None, "FSDP2"), ids=("replicated", "FSDP2"))
@pytest.mark.parametrize("world", (2, 4))
@pytest.mark.parametrize("name", ("KPOP", "QClean"))
def test_a_full_state_dict_is_that_of_one_process(cluster: Cluster, name, world, kind):
    """With QClean: codes of 8 bits that ranks rounded each in its part are those of the whole parameter."""
    alone = Run(name, None, replicate=False)
    alone.steps(1, SAVED_AFTER)
    wanted = get_optimizer_state_dict(alone.model, alone.optimizer)["state"]
    for state, explanation in cluster.run(world, _full_state_dict, name, kind):
        assert_identical(state, wanted)
        assert "each rank its part" in explanation.splitlines()[SHAPES.index((64, 80)) + 1]
    codes = [value for value in wanted[f"layers.{SHAPES.index((64, 80))}"].values() if value.ndim]
    assert (torch.uint8 in {code.dtype for code in codes}) == (name == "QClean")


def _resumed_from_a_full_one(name: str, kind: str | None, state: dict[str, Any]) -> list[Tensor]:
    run = Run(name, kind)
    options = StateDictOptions(full_state_dict=True)
    set_model_state_dict(run.model, state["model"], options=options)
    set_optimizer_state_dict(run.model, run.optimizer, state["optimizer"], options=options)
    run.steps(SAVED_AFTER + 1, LAST)
    return run.values()


@pytest.mark.parametrize("kind", (None, "FSDP2"), ids=("replicated", "FSDP2"))
def test_ranks_resume_what_one_process_began(cluster: Cluster, kind):
    alone = Run("QClean", None, replicate=False)
    alone.steps(1, SAVED_AFTER)
    state = {
        "model": {key: value.clone() for key, value in get_model_state_dict(alone.model).items()},
        "optimizer": copy.deepcopy(get_optimizer_state_dict(alone.model, alone.optimizer)),
    }
    alone.steps(SAVED_AFTER + 1, LAST)
    for values in cluster.run(2, _resumed_from_a_full_one, "QClean", kind, state):
        assert_identical(values, alone.values())


def _before_the_first_step(kind: str | None) -> bool:
    run = Run("KPOP", kind)
    before = run.values()
    state = get_optimizer_state_dict(run.model, run.optimizer)["state"]
    return all(map(torch.equal, before, run.values())) and {float(s["step"]) for s in state.values()} == {0.0}


@pytest.mark.parametrize("kind", (None, "FSDP2"), ids=("replicated", "FSDP2"))
def test_the_checkpoint_librarys_dummy_step_changes_nothing(cluster: Cluster, kind):
    assert all(cluster.run(2, _before_the_first_step, kind))
