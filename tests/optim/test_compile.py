"""Steps called from compiled code: the same bits, and nothing compiled anew as training goes on."""

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.optim.lr_scheduler import LambdaLR

from kpop_kernels.optim import KPOP, SOAP
from kpop_kernels.optim._base import MatrixOptimizer
from tests.optim.conventions.workload import assert_identical, parameters, set_gradients, snapshot
from tests.optim.registry import CASES

OURS = [case for case in CASES if case.ours]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def compiled_frames():
    """How many frames and graphs have been compiled so far."""
    return counters["frames"]["total"], counters["stats"]["unique_graphs"]


def trained(case, *, compiled):
    """The end of 12 steps under a schedule, and what was compiled after each."""
    params = parameters()
    optimizer = case.make(params)
    scheduler = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    step = torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step
    frames = []
    for i in range(12):
        set_gradients(params, i)
        step()
        scheduler.step()
        frames.append(compiled_frames())
    return snapshot(optimizer), frames


@pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)
def test_a_compiled_step_is_the_step_and_compiles_nothing_from_the_third_on(case):
    result, frames = trained(case, compiled=True)
    assert frames[0] > (0, 0)
    assert frames[-1] == frames[2]
    assert_identical(result, trained(case, compiled=False)[0])


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`-wrapped function")
def test_a_step_that_the_compiler_looks_into_is_compiled_again_when_it_renews(monkeypatch):
    """What the tests of this file would see if steps were not kept from the compiler."""
    monkeypatch.setattr(MatrixOptimizer, "_step", MatrixOptimizer._step.__wrapped__)
    (case,) = [case for case in OURS if case.cls is SOAP]
    _, frames = trained(case, compiled=True)
    assert frames[-1] > frames[2]


def model_trained(*, attached, compiled):
    """The end of 12 steps of KPOP on a model, and what was compiled after each."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))
        x = torch.randn(8, 6)
    optimizer = KPOP(model.parameters(), lr=2.0**-6)
    if attached:
        optimizer.attach(model)

    def train_step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    if compiled:
        train_step = torch.compile(train_step, backend="eager")
    frames = []
    for _ in range(12):
        train_step()
        frames.append(compiled_frames())
    return snapshot(optimizer), frames


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("attached", [False, True])
def test_compiled_training_is_training_and_compiles_nothing_from_the_third_step_on(attached):
    result, frames = model_trained(attached=attached, compiled=True)
    assert frames[0] > (0, 0)
    assert frames[-1] == frames[2]
    assert_identical(result, model_trained(attached=attached, compiled=False)[0])
