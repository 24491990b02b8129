"""Non-finite gradients on an accelerator: decided there, without the host waiting, and leaving no trace."""

import pytest
import torch
from torch import nn

from kpop_kernels.optim import _nonfinite, _updates
from tests.optim.conventions.workload import (
    assert_identical,
    parameters,
    set_gradients,
    snapshot,
    train,
    trajectory,
    values,
)
from tests.optim.registry import CASES

OURS = [case for case in CASES if case.ours]


def _variants():
    """Every optimizer with its usual schedule, and those that renew something also every step or every third."""
    for case in OURS:
        yield pytest.param(case, {}, id=case.name)
        if "precondition_frequency" in case.alternatives:
            yield pytest.param(case, {"precondition_frequency": 1}, id=f"{case.name} every step")
        if case.name == "KPOP":
            yield pytest.param(case, {"mode": "seed"}, id="KPOP seed")


@pytest.fixture
def as_on_an_accelerator(monkeypatch):
    """Leave every decision to the device, as where reading it would wait."""
    for module in (_nonfinite, _updates):
        monkeypatch.setattr(module, "on_host", lambda device: False)


def poisoned_step(optimizer, params):
    set_gradients(params, 99)
    for param in params:
        param.grad.view(-1)[-1] = torch.nan
    optimizer.step()


@pytest.mark.usefixtures("as_on_an_accelerator")
@pytest.mark.parametrize("at", [0, 2, 9, 10])
@pytest.mark.parametrize(("case", "options"), [*_variants()])
def test_steps_left_out_by_the_device_are_as_if_they_never_happened(case, options, at):
    params = parameters()
    optimizer = case.make(params, **options)
    train(optimizer, params, range(at))
    before = values(params)
    for _ in range(2):
        poisoned_step(optimizer, params)
    assert_identical(values(params), before)
    train(optimizer, params, range(at, 12))
    assert_identical(snapshot(optimizer), trajectory(case.make, 12, **options))
    assert optimizer.skipped == 2 * len(params)
    assert optimizer.failed_refreshes == 0


@pytest.mark.usefixtures("as_on_an_accelerator")
@pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)
def test_only_the_poisoned_parameter_is_left_out(case):
    poisoned, healthy = parameters()[:1], parameters()[2:3]
    optimizer, expected = case.make([*poisoned, *healthy]), parameters()[2:3]
    alone = case.make([*parameters()[:1], *expected])
    train(optimizer, [*poisoned, *healthy], range(2))
    train(alone, alone.param_groups[0]["params"], range(2))
    before = values(poisoned), snapshot(optimizer)[1][0]
    set_gradients([*poisoned, *healthy], 2)
    set_gradients(alone.param_groups[0]["params"], 2)
    poisoned[0].grad[1, 2] = torch.inf
    optimizer.step()
    alone.step()
    assert_identical((values(poisoned), snapshot(optimizer)[1][0]), before)
    assert_identical(values(healthy), values(expected))
    assert optimizer.skipped == 1


def after_one_step(case, **hyperparameters):
    """An optimizer with parameters, state and gradients on the meta device, as it would be after a step there.

    Tensors on that device have no values: `.item()`, `bool()` and `.tolist()` raise.
    """
    real = parameters()
    trained = case.make(real)
    train(trained, real, [0])
    params = [nn.Parameter(p.detach().to("meta")) for p in real]
    optimizer = case.make(params, **hyperparameters)
    for old, new in zip(real, params, strict=True):
        optimizer.state[new] = {
            key: value.to("meta") if isinstance(value, torch.Tensor) else value
            for key, value in trained.state[old].items()
        }
        optimizer._counts[id(new)] = 1
        new.grad = torch.empty_like(new)
    return optimizer


@pytest.mark.parametrize("lr", ["number", "tensor on the device"])
@pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)
def test_a_step_between_two_renewals_reads_nothing_back(case, lr):
    optimizer = after_one_step(case)
    if lr != "number":
        optimizer.param_groups[0].update(lr=torch.empty((), device="meta"), weight_decay=0.0)
    for _ in range(2):
        optimizer.step()
    assert optimizer._skipped.device.type == "meta"
    with pytest.raises(RuntimeError, match="meta tensor"):
        assert optimizer.skipped


@pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)
def test_raising_reads_the_gradients_back_before_anything_is_written(case):
    optimizer = after_one_step(case, on_nonfinite="raise")
    written = [t for state in optimizer.state.values() for t in state.values()] + [*optimizer.state]
    versions = [tensor._version for tensor in written]
    with pytest.raises(RuntimeError, match="meta tensor"):
        optimizer.step()
    assert [tensor._version for tensor in written] == versions
