import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

SCHEDULER_STACKS = {
    "no scheduler": [],
    "StepLR": [lambda optimizer: StepLR(optimizer, step_size=10, gamma=0.9)],
    "StepLR and plateau": [lambda optimizer: StepLR(optimizer, step_size=10, gamma=0.9), ReduceLROnPlateau],
}


def affine_problem(contiguous):
    """Weight, bias and the objective |Wx + b|² of a fixed x, as torch's own suite poses it."""
    generator = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(shape, generator=generator)

    weight = randn(10, 5) if contiguous else randn(10, 5, 2)[..., 0]
    bias = randn(10) if contiguous else randn(10, 2)[..., 0]
    x = randn(5)
    weight, bias = nn.Parameter(weight), nn.Parameter(bias)
    assert weight.is_contiguous() == contiguous
    return weight, bias, lambda: (weight @ x + bias).square().sum()


def run(optimizer, objective, schedulers, steps=20):
    """Take closure steps and return the objective before and after them."""

    def closure():
        optimizer.zero_grad()
        loss = objective()
        loss.backward()
        return loss

    before = objective().item()
    for _ in range(steps):
        loss = optimizer.step(closure)
        for scheduler in schedulers:
            if isinstance(scheduler, ReduceLROnPlateau):
                scheduler.step(loss.detach())
            else:
                scheduler.step()
    return before, objective().item()


@pytest.mark.parametrize("contiguous", [True, False], ids=["contiguous", "strided"])
@pytest.mark.parametrize("stack", SCHEDULER_STACKS.values(), ids=SCHEDULER_STACKS)
def test_twenty_steps_go_the_right_way_with_every_hyperparameter(case, contiguous, stack):
    variants = [{}, *({name: value} for name, value in case.alternatives.items())]
    for hyperparameters in variants:
        weight, bias, objective = affine_problem(contiguous)
        optimizer = case.make([weight, bias], **hyperparameters)
        before, after = run(optimizer, objective, [build(optimizer) for build in stack])
        rises = hyperparameters.get("maximize", False)
        assert after > before if rises else after < before, hyperparameters


def test_a_group_with_its_own_rate_descends_under_a_scheduler(case):
    weight, bias, objective = affine_problem(contiguous=True)
    optimizer = case.make([{"params": [weight]}, {"params": [bias], "lr": case.lr / 4}])
    before, after = run(optimizer, objective, [StepLR(optimizer, step_size=10, gamma=0.9)])
    assert after < before
    rates = [group["lr"] for group in optimizer.param_groups]
    assert rates == pytest.approx([0.81 * case.lr, 0.81 * case.lr / 4])


def test_enough_steps_reach_a_small_fraction_of_the_objective(case):
    weight, bias, objective = affine_problem(contiguous=True)
    before, after = run(case.make([weight, bias], lr=4 * case.lr), objective, [], steps=100)
    assert after < 0.01 * before
