import copy
import io

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    _init_optim_state,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from tests.optim.conventions.workload import (
    assert_identical,
    identical,
    parameters,
    snapshot,
    train,
    trajectory,
    values,
)

STEPS = 23


def reloaded(state_dict):
    """A state dict after a trip through a file that is read with `weights_only=True`."""
    file = io.BytesIO()
    torch.save(state_dict, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def trained(case, steps, **hyperparameters):
    params = parameters()
    optimizer = case.make(params, **hyperparameters)
    train(optimizer, params, range(steps))
    return optimizer, params


def continued(case, params, state_dict, steps, **hyperparameters):
    """Where a new optimizer over copies of `params` ends that loads `state_dict` and takes `steps`."""
    params = [nn.Parameter(value) for value in values(params)]
    optimizer = case.make(params, **hyperparameters)
    optimizer.load_state_dict(state_dict)
    train(optimizer, params, steps)
    return snapshot(optimizer)


@pytest.mark.parametrize("saved_at", [0, 1, 7, 20])
def test_training_resumed_from_a_weights_only_file_continues_bit_for_bit(case, saved_at):
    optimizer, params = trained(case, saved_at)
    state_dict = reloaded(optimizer.state_dict())
    resumed = continued(case, params, state_dict, range(saved_at, STEPS))
    assert_identical(resumed, trajectory(case.make, STEPS))


def test_a_file_gives_back_the_same_state_dict(case):
    optimizer, _ = trained(case, 3)
    assert_identical(reloaded(optimizer.state_dict()), optimizer.state_dict())


def test_equal_histories_have_equal_state_dicts_and_pack_parameters_to_numbers(case):
    groups = [[0, 1], [2, 3]]
    first, second = (
        case.make([{"params": [params[i] for i in group]} for group in groups])
        for params in (parameters(), parameters())
    )
    for optimizer in (first, second):
        train(optimizer, [p for g in optimizer.param_groups for p in g["params"]], range(3))
    assert_identical(first.state_dict(), second.state_dict())
    assert [group["params"] for group in first.state_dict()["param_groups"]] == groups
    assert set(first.state_dict()["state"]) == {0, 1, 2, 3}


def test_a_state_dict_refers_to_the_state_without_copying_it(case):
    optimizer, params = trained(case, 1)
    for index, param in enumerate(params):
        for key, value in optimizer.state_dict()["state"][index].items():
            assert value is optimizer.state[param][key]


def test_loading_takes_the_keyword_state_dict_and_does_not_change_it(case):
    optimizer, params = trained(case, 7)
    state_dict = copy.deepcopy(optimizer.state_dict())
    before = copy.deepcopy(state_dict)
    fresh = case.make([nn.Parameter(value.bfloat16()) for value in values(params)])
    fresh.load_state_dict(state_dict=state_dict)
    assert_identical(state_dict, before)


def test_training_after_loading_does_not_change_what_was_loaded(case):
    optimizer, params = trained(case, 7)
    state_dict = copy.deepcopy(optimizer.state_dict())
    before = copy.deepcopy(state_dict)
    continued(case, params, state_dict, range(7, 12))
    assert_identical(state_dict, before)


def test_groups_that_do_not_match_are_refused(case):
    optimizer, params = trained(case, 1)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        case.make([{"params": params[:2]}, {"params": params[2:]}]).load_state_dict(optimizer.state_dict())
    with pytest.raises(ValueError, match="doesn't match the size"):
        case.make(params[:2]).load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "default_dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str
)
def test_loading_keeps_the_dtype_and_bits_of_every_state_tensor(case, dtype, default_dtype):
    optimizer, _ = trained(case, 1)
    state_dict = copy.deepcopy(optimizer.state_dict())
    for state in state_dict["state"].values():
        state["codes"] = torch.arange(7, dtype=torch.uint8)
        state["counts"] = torch.arange(7, dtype=torch.int32)
        state["float32"] = torch.tensor([1.00123, 1e-30])
        state["float64"] = torch.tensor([1 + 2.0**-40], dtype=torch.float64)
    before = copy.deepcopy(state_dict)
    fresh = case.make(parameters(dtype=dtype))
    torch.set_default_dtype(default_dtype)
    try:
        fresh.load_state_dict(state_dict)
    finally:
        torch.set_default_dtype(torch.float32)
    assert_identical(fresh.state_dict()["state"], before["state"])


def test_loading_moves_the_state_to_the_device_of_its_parameter(case):
    optimizer, params = trained(case, 1)
    elsewhere = [nn.Parameter(param.detach().to("meta")) for param in params]
    fresh = case.make(elsewhere)
    fresh.load_state_dict(optimizer.state_dict())
    for param in elsewhere:
        devices = {key: v.device.type for key, v in fresh.state[param].items() if isinstance(v, torch.Tensor)}
        assert devices.pop("step") == ("meta" if case.ours else "cpu")
        assert set(devices.values()) == {"meta"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_low_precision_training_resumes_bit_for_bit(case, dtype):
    params = parameters(dtype=dtype)
    optimizer = case.make(params)
    train(optimizer, params, range(7))
    state_dict = reloaded(optimizer.state_dict())
    resumed = continued(case, params, state_dict, range(7, 12))
    train(optimizer, params, range(7, 12))
    assert_identical(resumed, snapshot(optimizer))


def test_a_checkpoint_older_than_a_group_key_loads_with_the_default(case):
    optimizer, params = trained(case, 7)
    keys = set(optimizer.defaults) - {"lr"}
    if case.optional_group_keys is not None:
        keys &= case.optional_group_keys
    assert keys
    for key in keys:
        state_dict = copy.deepcopy(optimizer.state_dict())
        del state_dict["param_groups"][0][key]
        assert_identical(continued(case, params, state_dict, range(7, 12)), trajectory(case.make, 12))


def test_a_step_saved_as_a_plain_number_loads(case):
    optimizer, params = trained(case, 7)
    state_dict = copy.deepcopy(optimizer.state_dict())
    for state in state_dict["state"].values():
        state["step"] = state["step"].item()
    assert_identical(continued(case, params, state_dict, range(7, 12)), trajectory(case.make, 12))


@pytest.mark.parametrize("saved_named", [True, False], ids=["saved named", "saved plain"])
@pytest.mark.parametrize("loaded_named", [True, False], ids=["loaded named", "loaded plain"])
def test_named_and_plain_checkpoints_load_into_each_other(case, saved_named, loaded_named):
    def build(params, named):
        return case.make([(f"p{i}", p) for i, p in enumerate(params)] if named else params)

    params = parameters()
    optimizer = build(params, saved_named)
    train(optimizer, params, range(3))
    fresh = build(parameters(), loaded_named)
    fresh.load_state_dict(optimizer.state_dict())
    names = ["p0", "p1", "p2", "p3"] if saved_named or loaded_named else None
    assert fresh.param_groups[0].get("param_names") == names
    assert_identical(snapshot(fresh)[1], snapshot(optimizer)[1])


def test_state_dict_hooks_run_around_it_and_may_replace_the_result(case):
    optimizer, _ = trained(case, 1)
    calls = []
    optimizer.register_state_dict_pre_hook(lambda _: calls.append("second"))
    optimizer.register_state_dict_pre_hook(lambda _: calls.append("first"), prepend=True)
    optimizer.register_state_dict_post_hook(lambda _, state_dict: {**state_dict, "extra": 1})
    assert optimizer.state_dict()["extra"] == 1
    assert calls == ["first", "second"]


def test_load_hooks_run_around_loading_and_may_replace_what_is_loaded(case):
    optimizer, params = trained(case, 3)
    state_dict = copy.deepcopy(optimizer.state_dict())
    fresh = case.make(params)
    seen = []

    def halve_rate(_, state_dict):
        state_dict["param_groups"][0]["lr"] = case.lr / 2
        return state_dict

    fresh.register_load_state_dict_pre_hook(lambda o, s: seen.append(s["param_groups"][0]["lr"]))
    fresh.register_load_state_dict_pre_hook(halve_rate, prepend=True)
    fresh.register_load_state_dict_post_hook(lambda o: seen.append(o.param_groups[0]["lr"]))
    fresh.load_state_dict(state_dict)
    assert seen == [case.lr / 2, case.lr / 2]


@pytest.mark.parametrize("tensor_lr", [False, True], ids=["float lr", "tensor lr"])
def test_the_dummy_step_of_distributed_checkpoint_does_not_count(case, tensor_lr):
    lr = torch.tensor(case.lr) if tensor_lr else case.lr
    params = parameters()
    optimizer = case.make(params, lr=lr)
    before = values(params)
    _init_optim_state(optimizer)
    assert_identical(values(params), before)
    assert optimizer.param_groups[0]["lr"] == case.lr
    train(optimizer, params, range(12))
    assert_identical(snapshot(optimizer), trajectory(case.make, 12, lr=lr))


def test_the_dummy_step_of_distributed_checkpoint_creates_every_state_entry(case):
    def layout(optimizer):
        states = snapshot(optimizer)[1]
        return [
            {k: (v.dtype, v.shape) if isinstance(v, torch.Tensor) else type(v) for k, v in state.items()}
            for state in states
        ]

    dummy = case.make(parameters())
    _init_optim_state(dummy)
    real, _ = trained(case, 1)
    assert layout(dummy) == layout(real)


def test_distributed_checkpoint_state_dicts_by_name_resume_bit_for_bit(case):
    def build():
        model = nn.Module()
        for index, param in enumerate(parameters()):
            model.register_parameter(f"p{index}", param)
        return model, case.make(model.parameters())

    model, optimizer = build()
    params = list(model.parameters())
    train(optimizer, params, range(7))
    state_dict = reloaded(get_optimizer_state_dict(model, optimizer))
    assert set(state_dict["state"]) == {"p0", "p1", "p2", "p3"}
    resumed_model, resumed = build()
    resumed_model.load_state_dict(model.state_dict())
    set_optimizer_state_dict(resumed_model, resumed, state_dict)
    train(resumed, list(resumed_model.parameters()), range(7, 12))
    assert_identical(snapshot(resumed), trajectory(case.make, 12))
    assert not identical(values(resumed_model.parameters()), values(params))
