import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import (
    LambdaLR,
    LinearLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from tests.optim.conventions.workload import assert_identical, parameters, snapshot, train, values

STEPS = 12


def sequential(optimizer):
    warmup = LinearLR(optimizer, start_factor=0.25, total_iters=4)
    return SequentialLR(optimizer, [warmup, StepLR(optimizer, step_size=3, gamma=0.5)], milestones=[4])


SCHEDULERS = {
    "LambdaLR": lambda optimizer: LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "OneCycleLR": lambda optimizer: OneCycleLR(
        optimizer, max_lr=2 * optimizer.param_groups[0]["lr"], total_steps=STEPS + 1
    ),
    "ReduceLROnPlateau": lambda optimizer: ReduceLROnPlateau(optimizer, patience=1, factor=0.5),
    "SequentialLR": sequential,
}


def advance(scheduler):
    """Step a scheduler; one that watches a metric sees a constant, so it reduces the rate."""
    if isinstance(scheduler, ReduceLROnPlateau):
        scheduler.step(1.0)
    else:
        scheduler.step()


@pytest.mark.parametrize("build", SCHEDULERS.values(), ids=SCHEDULERS)
def test_what_a_scheduler_writes_is_what_the_next_step_uses(case, build):
    scheduled, by_hand = parameters(), parameters()
    optimizer, plain = case.make(scheduled), case.make(by_hand)
    scheduler = build(optimizer)
    rates = []
    for step in range(STEPS):
        written = {key: optimizer.param_groups[0][key] for key in plain.defaults}
        rates.append(written["lr"])
        plain.param_groups[0].update(written)
        train(optimizer, scheduled, [step])
        train(plain, by_hand, [step])
        advance(scheduler)
    assert len(set(rates)) > 2
    assert_identical(snapshot(optimizer), snapshot(plain))


def test_one_cycle_moves_beta1_too(case):
    optimizer = case.make(parameters())
    SCHEDULERS["OneCycleLR"](optimizer)
    assert optimizer.param_groups[0]["betas"][0] == 0.95
    assert optimizer.param_groups[0]["betas"][1] == optimizer.defaults["betas"][1]


def test_a_scheduler_fills_a_tensor_learning_rate_in_place(case):
    params = parameters()
    optimizer = case.make(params, lr=torch.tensor(case.lr))
    rate = optimizer.param_groups[0]["lr"]
    scheduler = SCHEDULERS["LambdaLR"](optimizer)
    train(optimizer, params, [0])
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate == case.lr / 2


def test_scheduler_and_optimizer_resume_together_bit_for_bit(case):
    def start(params):
        optimizer = case.make(params)
        return optimizer, SCHEDULERS["LambdaLR"](optimizer)

    def go_on(optimizer, scheduler, params, steps):
        for step in steps:
            train(optimizer, params, [step])
            scheduler.step()
        return snapshot(optimizer)

    params = parameters()
    optimizer, scheduler = start(params)
    go_on(optimizer, scheduler, params, range(5))
    saved = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict(), values(params)))
    expected = go_on(optimizer, scheduler, params, range(5, STEPS))

    resumed_params = [nn.Parameter(value) for value in saved[2]]
    resumed, resumed_scheduler = start(resumed_params)
    resumed.load_state_dict(saved[0])
    resumed_scheduler.load_state_dict(saved[1])
    assert resumed.param_groups[0]["initial_lr"] == case.lr
    assert_identical(go_on(resumed, resumed_scheduler, resumed_params, range(5, STEPS)), expected)


def test_a_scheduled_optimizer_is_freed_without_the_cycle_collector(case):
    params = parameters()
    optimizer = case.make(params)
    scheduler = SCHEDULERS["LambdaLR"](optimizer)
    train(optimizer, params, [0])
    scheduler.step()
    reference = weakref.ref(optimizer)
    gc.collect()
    gc.disable()
    try:
        del optimizer, scheduler
        assert reference() is None
    finally:
        gc.enable()
