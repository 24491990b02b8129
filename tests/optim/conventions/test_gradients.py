import math

import pytest
import torch
from torch import nn

from tests.optim.conventions.workload import (
    assert_identical,
    gradient,
    parameters,
    set_gradients,
    snapshot,
    train,
    trajectory,
    values,
)


def transposed_storage(grad):
    return grad.t().contiguous().t()


def every_other_element(grad):
    return torch.stack([grad, torch.full_like(grad, math.nan)], dim=-1)[..., 0]


def channels_last(grad):
    return grad.contiguous(memory_format=torch.channels_last)


LAYOUTS = {
    "transposed": (transposed_storage, (6, 4)),
    "strided": (every_other_element, (6, 4)),
    "strided vector": (every_other_element, (5,)),
    "channels_last": (channels_last, (3, 4, 2, 2)),
}


@pytest.mark.parametrize(("layout", "shape"), LAYOUTS.values(), ids=LAYOUTS)
def test_the_memory_layout_of_a_gradient_does_not_change_a_bit(case, layout, shape):
    plain, laid_out = parameters([shape]), parameters([shape])
    expected, optimizer = case.make(plain), case.make(laid_out)
    for step in range(12):
        grad = gradient(plain[0], step)
        plain[0].grad, laid_out[0].grad = grad, layout(grad)
        assert laid_out[0].grad.stride() != grad.stride()
        expected.step()
        optimizer.step()
    assert_identical(snapshot(optimizer), snapshot(expected))


def test_an_expanded_gradient_does_not_change_a_bit(case):
    plain, expanded = parameters([(6, 4)]), parameters([(6, 4)])
    expected, optimizer = case.make(plain), case.make(expanded)
    for step in range(12):
        grad = gradient(plain[0], step)[:1].expand(6, 4)
        plain[0].grad, expanded[0].grad = grad.contiguous(), grad
        expected.step()
        optimizer.step()
    assert_identical(snapshot(optimizer), snapshot(expected))


def test_a_sparse_gradient_is_refused_by_name_and_changes_nothing(case):
    (param,) = parameters([(6, 4)])
    optimizer = case.make([param])
    train(optimizer, [param], range(2))
    before = snapshot(optimizer)
    param.grad = gradient(param, 2).to_sparse()
    with pytest.raises(RuntimeError) as error:
        optimizer.step()
    assert "sparse" in str(error.value)
    assert_identical(snapshot(optimizer), before)
    assert case.cls.__name__ in str(error.value)


def test_a_complex_parameter_trains_as_its_real_view_or_is_refused_by_name(case):
    param = nn.Parameter(torch.complex(gradient(torch.empty(6, 4), 0), gradient(torch.empty(6, 4), 1)))
    real = nn.Parameter(torch.view_as_real(param.detach()).clone())
    if not case.supports_complex:
        with pytest.raises((RuntimeError, ValueError, TypeError), match=f"{case.cls.__name__}.*complex"):
            train(case.make([param]), [param], [0])
        return
    optimizer, expected = case.make([param]), case.make([real])
    for step in range(3):
        real.grad = gradient(real, step)
        param.grad = torch.view_as_complex(real.grad)
        optimizer.step()
        expected.step()
    assert_identical(values([torch.view_as_real(param.detach())]), values([real]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_other_floating_dtypes_train_and_keep_their_dtype(case, dtype):
    params = parameters(dtype=dtype)
    before = values(params)
    train(case.make(params), params, range(12))
    for param, old in zip(params, before, strict=True):
        assert param.dtype == dtype
        assert param.isfinite().all()
        assert not torch.equal(param, old)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("at", [0, 3, 10])
def test_a_step_of_non_finite_gradients_is_as_if_it_never_happened(case, bad, at):
    params = parameters()
    optimizer = case.make(params)
    train(optimizer, params, range(at))
    before = values(params)
    set_gradients(params, 99)
    for param in params:
        param.grad.view(-1)[-1] = bad
    optimizer.step()
    assert_identical(values(params), before)
    train(optimizer, params, range(at, 12))
    assert_identical(snapshot(optimizer), trajectory(case.make, 12))


def test_one_non_finite_gradient_leaves_its_parameter_and_the_others_finite(case):
    poisoned, healthy = parameters()[0], parameters()[2]
    optimizer = case.make([poisoned, healthy], weight_decay=0.1)
    train(optimizer, [poisoned, healthy], range(2))
    before, state = values([poisoned]), snapshot(optimizer)[1][0]
    set_gradients([poisoned, healthy], 2)
    poisoned.grad[1, 2] = math.nan
    optimizer.step()
    assert_identical(values([poisoned]), before)
    assert_identical(snapshot(optimizer)[1][0], state)
    assert healthy.isfinite().all()


@pytest.mark.parametrize("scale", [1e-30, 1e18], ids=str)
def test_gradients_of_extreme_size_give_finite_steps_no_larger_than_ordinary_ones(case, scale):
    params = parameters()
    optimizer = case.make(params)
    for step in range(12):
        before = values(params)
        set_gradients(params, step)
        for param in params:
            param.grad.mul_(scale)
        optimizer.step()
        for param, old in zip(params, before, strict=True):
            assert param.isfinite().all()
            assert (param - old).abs().max() < 50 * case.lr


def scaled_step(scaler, optimizer, params, step, poison=False):
    set_gradients(params, step)
    for param in params:
        param.grad.mul_(scaler.get_scale())
    if poison:
        params[0].grad[0, 0] = math.inf
    scaler.step(optimizer)
    scaler.update()


def test_training_through_a_grad_scaler_is_training_without_one_bit_for_bit(case):
    params = parameters()
    optimizer = case.make(params)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    scaler.scale(torch.zeros(()))
    for step in range(12):
        scaled_step(scaler, optimizer, params, step)
    assert scaler.get_scale() > 2.0**10
    assert_identical(snapshot(optimizer), trajectory(case.make, 12))


@pytest.mark.parametrize("at", [0, 3])
def test_an_overflow_seen_by_a_grad_scaler_leaves_parameters_and_state_alone(case, at):
    params = parameters()
    optimizer = case.make(params)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    scaler.scale(torch.zeros(()))
    for step in range(12):
        if step == at:
            before = snapshot(optimizer)
            scaled_step(scaler, optimizer, params, 99, poison=True)
            assert scaler.get_scale() == 2.0**9
            assert_identical(snapshot(optimizer), before)
        scaled_step(scaler, optimizer, params, step)
    assert_identical(snapshot(optimizer), trajectory(case.make, 12))
