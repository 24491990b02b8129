"""What the optimizers of this package have in common beyond torch's conventions."""

import pytest
import torch
from torch import nn

from kpop_kernels import backends, optim
from kpop_kernels.optim import _buckets
from tests.optim.conventions.workload import assert_identical, parameters, set_gradients, snapshot, train
from tests.optim.registry import CASES

OURS = [pytest.param(case, id=case.name) for case in CASES if case.ours]


def test_every_optimizer_of_the_package_is_registered():
    exported = {thing for thing in vars(optim).values() if isinstance(thing, type)}
    assert exported == {case.cls for case in CASES if case.ours}


@pytest.mark.parametrize("case", OURS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_non_finite_gradient_raises_on_request_and_changes_nothing(case, bad):
    params = parameters()
    named = [(f"p{i}", p) for i, p in enumerate(params)]
    optimizer = case.make(named, on_nonfinite="raise")
    train(optimizer, params, range(2))
    before = snapshot(optimizer)
    set_gradients(params, 2)
    params[1].grad[3] = bad
    with pytest.raises(RuntimeError, match=f"{case.cls.__name__}: the gradient of p1 holds NaN or Inf"):
        optimizer.step()
    assert_identical(snapshot(optimizer), before)


@pytest.mark.parametrize("case", OURS)
def test_skipped_updates_are_counted(case):
    params = parameters()
    optimizer = case.make(params)
    set_gradients(params, 0)
    for param in params[:2]:
        param.grad.view(-1)[0] = torch.nan
    optimizer.step()
    assert optimizer.skipped == 2


@pytest.mark.parametrize("case", OURS)
def test_the_first_matching_rule_decides_and_adam_is_adam_for_every_optimizer(case):
    """A matrix given to Adam by name trains as its numbers in a vector, which every optimizer gives to Adam."""
    (matrix,) = parameters([(6, 4)])
    vector = nn.Parameter(matrix.detach().flatten())
    rules = {"weight": "adam", "*": "both"}
    by_rule, plain = case.make([("weight", matrix)], rules=rules), case.make([vector])
    for step in range(12):
        set_gradients([matrix], step)
        vector.grad = matrix.grad.flatten()
        by_rule.step()
        plain.step()
    assert_identical(matrix.detach().flatten(), vector.detach())
    assert "rules say 'adam'" in by_rule.explain()


@pytest.mark.parametrize("case", OURS)
def test_explain_has_a_line_for_each_parameter(case):
    params = parameters()
    header, *lines = case.make(params).explain().splitlines()
    assert header.split()[:2] == ["parameter", "shape"]
    assert [line.split()[0] for line in lines] == ["#0", "#1", "#2", "#3"]
    assert "Adam" in lines[1]


@pytest.mark.parametrize(
    "case", [param for param in OURS if param.values[0].name in ("Muon", "OnlineKLShampoo", "Shampoo")]
)
def test_parameters_share_calls_and_sharing_does_not_change_them(case, monkeypatch):
    shapes = [(6, 4), (6, 4), (4, 6), (6, 4), (5, 5)]

    def trained():
        params = parameters(shapes, dtype=torch.float64)
        with backends.trace() as served:
            train(case.make(params), params, range(5))
        return torch.cat([p.detach().flatten() for p in params]), served.total()

    together, few = trained()
    monkeypatch.setattr(_buckets, "MAX_ELEMENTS", 30)
    apart, many = trained()
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-12)
    assert many > few


LISTED = ("KPOP", "SOAP", "Muon", "OnlineKLShampoo", "Shampoo")


@pytest.mark.parametrize("case", [param for param in OURS if param.values[0].name in LISTED])
def test_a_step_makes_as_many_calls_for_six_shapes_as_for_two(case):
    """A step that renews nothing that it need not: every operator is called on lists."""
    shapes = [(6, 4), (5, 7), (3, 3), (8, 2), (4, 9), (7, 7)]

    def calls(shapes):
        params = parameters(shapes)
        optimizer = case.make(params)
        train(optimizer, params, range(2))
        with backends.trace() as served:
            train(optimizer, params, range(2, 3))
        return served

    assert calls(shapes) == calls(shapes[:2])


@pytest.mark.parametrize("case", [param for param in OURS if "stagger" in param.values[0].alternatives])
def test_staggering_moves_refreshes_of_other_phases_only(case):
    """Of five parameters refreshed every 4 steps, those at positions 0 and 4 have the phase of the common step."""

    def trained(stagger, precondition_frequency):
        params = parameters([(6, 4)] * 5)
        optimizer = case.make(params, stagger=stagger, precondition_frequency=precondition_frequency)
        train(optimizer, params, range(20))
        return [p.detach() for p in params]

    plain, staggered = trained(False, 4), trained(True, 4)
    same = [torch.equal(a, b) for a, b in zip(plain, staggered, strict=True)]
    assert same == [True, False, False, False, True]
    assert_identical(trained(True, 1), trained(False, 1))
