import gc
import random
import weakref

import pytest
import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from tests.optim.conventions.workload import (
    assert_identical,
    bits,
    gradient,
    identical,
    parameters,
    set_gradients,
    snapshot,
    tensors_in,
    train,
    trajectory,
    values,
)


def test_step_without_a_closure_returns_none(case):
    params = parameters()
    optimizer = case.make(params)
    set_gradients(params, 0)
    assert optimizer.step() is None


def test_a_closure_runs_once_with_gradients_on_and_its_loss_is_returned(case):
    (param,) = parameters([(4, 3)])
    optimizer = case.make([param])
    losses = []

    def closure():
        optimizer.zero_grad()
        losses.append(param.square().sum())
        losses[-1].backward()
        return losses[-1]

    with torch.no_grad():
        returned = optimizer.step(closure)
        assert not torch.is_grad_enabled()
    assert len(losses) == 1
    assert returned is losses[0]


def test_hooks_run_global_first_before_and_local_first_after_until_removed(case):
    params = parameters()
    optimizer = case.make(params)
    before = values(params)
    calls = []

    def record(name):
        return lambda *_: calls.append((name, identical(values(params), before)))

    handles = [
        optimizer.register_step_post_hook(record("local post")),
        optimizer.register_step_pre_hook(record("local pre")),
        register_optimizer_step_post_hook(record("global post")),
        register_optimizer_step_pre_hook(record("global pre")),
    ]
    try:
        train(optimizer, params, [0])
    finally:
        for handle in handles:
            handle.remove()
    train(optimizer, params, [1])
    assert calls == [("global pre", True), ("local pre", True), ("local post", False), ("global post", False)]


def test_zero_grad_sets_gradients_to_none_unless_told_to_zero_them(case):
    params = parameters()
    optimizer = case.make(params)
    set_gradients(params, 0)
    optimizer.zero_grad(set_to_none=False)
    assert all(not p.grad.count_nonzero() for p in params)
    optimizer.zero_grad()
    assert all(p.grad is None for p in params)


def test_a_parameter_without_a_gradient_is_skipped_and_gets_no_state(case):
    with_gradient, without = parameters()[0], parameters()[2]
    optimizer = case.make([with_gradient, without])
    before = values([without])
    for step in range(2):
        with_gradient.grad = gradient(with_gradient, step)
        optimizer.step()
    assert without not in optimizer.state
    assert_identical(values([without]), before)

    without.grad = gradient(without, 0)
    optimizer.step()
    assert optimizer.state[without]["step"] == 1


def test_a_step_without_any_gradient_changes_nothing(case):
    params = parameters()
    optimizer = case.make(params)
    train(optimizer, params, range(3))
    before = snapshot(optimizer)
    optimizer.zero_grad()
    optimizer.step()
    assert_identical(snapshot(optimizer), before)


@pytest.mark.parametrize("shape", [(5, 1), (6, 4), (5,), ()], ids=str)
def test_zero_gradients_leave_fresh_parameters_as_they_are(case, shape):
    (param,) = parameters([shape])
    optimizer = case.make([param], weight_decay=0.0)
    param.grad = torch.zeros_like(param)
    before = values([param])
    loss = torch.tensor(1.0)
    assert optimizer.step(lambda: loss) is loss
    assert_identical(values([param]), before)


def test_zero_gradients_before_the_first_real_one_do_not_harm_what_follows(case):
    params = parameters()
    optimizer = case.make(params, weight_decay=0.0)
    for _ in range(3):
        for param in params:
            param.grad = torch.zeros_like(param)
        optimizer.step()
    before = values(params)
    train(optimizer, params, range(3))
    for param, old in zip(params, before, strict=True):
        moved = (param - old).abs().max()
        assert 0 < moved < 10 * case.lr


def test_gradients_are_never_written_whatever_the_hyperparameters(case):
    for hyperparameters in ({}, *({name: value} for name, value in case.alternatives.items())):
        params = parameters()
        optimizer = case.make(params, **hyperparameters)
        for step in range(3):
            set_gradients(params, step)
            given = [(p.grad, p.grad.clone(), p.grad._version) for p in params]
            optimizer.step()
            for param, (grad, copy, version) in zip(params, given, strict=True):
                assert param.grad is grad
                assert grad._version == version
                assert_identical(grad, copy)


def test_the_first_step_moves_every_parameter_downhill(case):
    params = parameters()
    optimizer = case.make(params)
    before = values(params)
    train(optimizer, params, [0])
    for param, old in zip(params, before, strict=True):
        assert torch.sum(param.grad * (param - old)) < 0


def test_maximize_is_minimizing_with_the_gradient_negated(case):
    params, mirrored = parameters(), parameters()
    ascent, descent = case.make(params, maximize=True), case.make(mirrored)
    for step in range(12):
        set_gradients(params, step)
        for param, twin in zip(params, mirrored, strict=True):
            twin.grad = -param.grad
        ascent.step()
        descent.step()
    assert_identical(values(params), values(mirrored))


def test_weight_decay_is_decoupled_from_the_gradient_and_set_per_group(case):
    decay = 0.125
    decayed, plain = parameters([(6, 4)]), parameters([(6, 4)])
    before = values(plain)
    optimizer = case.make(
        [{"params": decayed, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]
    )
    decayed[0].grad = plain[0].grad = gradient(plain[0], 0)
    optimizer.step()
    torch.testing.assert_close(plain[0] - decayed[0], case.lr * decay * before[0], rtol=1e-4, atol=1e-6)


def test_a_group_with_a_vanishing_learning_rate_stays_while_another_moves(case):
    still, moving = parameters([(6, 4)]), parameters([(6, 4)])
    optimizer = case.make([{"params": still, "lr": 1e-28}, {"params": moving}])
    before = values(still)
    train(optimizer, [*still, *moving], range(3))
    assert_identical(values(still), before)
    assert not identical(values(moving), before)


def test_a_tensor_learning_rate_is_the_float_bit_for_bit(case):
    tensor_lr = torch.tensor(case.lr)
    for decay in (0.0, 0.1):
        by_tensor = trajectory(case.make, 12, lr=tensor_lr, weight_decay=decay)
        assert_identical(by_tensor, trajectory(case.make, 12, lr=case.lr, weight_decay=decay))
    assert tensor_lr == case.lr


def test_training_neither_reads_nor_advances_the_global_random_state(case):
    torch.manual_seed(1)
    expected = trajectory(case.make, 12)
    torch.manual_seed(2)
    before = torch.get_rng_state(), random.getstate()
    assert_identical(trajectory(case.make, 12), expected)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_memory_is_flat_once_the_state_exists(case):
    params = parameters()
    optimizer = case.make(params)

    def live_tensor_bytes():
        gc.collect()
        return sum(x.untyped_storage().nbytes() for x in gc.get_objects() if type(x) is torch.Tensor)

    train(optimizer, params, range(12))
    optimizer.zero_grad()
    before = live_tensor_bytes(), sum(x.numel() for x in tensors_in(dict(optimizer.state)))
    assert before[1] > 0
    train(optimizer, params, range(12, 24))
    optimizer.zero_grad()
    assert (live_tensor_bytes(), sum(x.numel() for x in tensors_in(dict(optimizer.state)))) == before


def test_the_optimizer_and_its_parameters_are_freed_without_the_cycle_collector(case):
    params = parameters()
    optimizer = case.make(params)
    train(optimizer, params, range(2))
    references = [weakref.ref(optimizer), *map(weakref.ref, params)]
    gc.collect()
    gc.disable()
    try:
        del optimizer, params
        assert [reference() for reference in references] == [None] * len(references)
    finally:
        gc.enable()


def test_a_gradient_with_a_graph_does_not_tie_the_graph_to_parameters_or_state(case):
    param = nn.Parameter(gradient(torch.empty(6, 4), 0))
    optimizer = case.make([param])
    (param.grad,) = torch.autograd.grad(param.pow(3).sum(), param, create_graph=True)
    assert param.grad.requires_grad
    optimizer.step()
    assert param.is_leaf
    assert not any(tensor.requires_grad for tensor in tensors_in(optimizer.state[param]))
    optimizer.zero_grad()


def test_two_equal_runs_agree_bit_for_bit(case):
    first, second = trajectory(case.make, 12), trajectory(case.make, 12)
    assert_identical(first, second)
    assert all(bits(param).numel() for param in first[0])
