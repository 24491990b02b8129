import pytest
import torch
from torch import nn

from tests.optim.conventions.workload import assert_identical, parameters, tensors_in, train


@pytest.fixture
def default_dtype():
    before = torch.get_default_dtype()
    yield torch.set_default_dtype
    torch.set_default_dtype(before)


def test_there_is_no_state_before_the_first_step_and_one_per_parameter_after_it(case):
    params = parameters()
    optimizer = case.make(params)
    assert not optimizer.state
    train(optimizer, params, [0])
    assert set(optimizer.state) == set(params)
    assert all(optimizer.state[param] for param in params)


def test_step_counts_in_a_float32_scalar_tensor_on_the_cpu(case):
    params = parameters()
    optimizer = case.make(params)
    train(optimizer, params, range(3))
    for param in params:
        step = optimizer.state[param]["step"]
        assert isinstance(step, torch.Tensor)
        assert (step.dtype, step.shape, step.device.type) == (torch.float32, (), "cpu")
        assert step == 3


def test_state_holds_tensors_and_plain_scalars_only(case):
    params = parameters()
    optimizer = case.make(params)
    train(optimizer, params, range(2))
    for state in optimizer.state.values():
        for key, value in state.items():
            assert isinstance(key, str)
            assert type(value) in (torch.Tensor, int, float, bool, str, type(None)), key


def test_state_tensors_share_no_memory_with_each_other_or_with_parameters(case):
    params = parameters()
    optimizer = case.make(params)
    train(optimizer, params, range(2))
    tensors = [*params, *tensors_in(dict(optimizer.state))]
    addresses = [t.untyped_storage().data_ptr() for t in tensors if t.numel()]
    assert len(set(addresses)) == len(addresses)


def with_default(case, set_default, dtype):
    params = parameters()
    set_default(dtype)
    optimizer = case.make(params)
    train(optimizer, params, range(12))
    set_default(torch.float32)
    return [p.detach() for p in params], [optimizer.state[param] for param in params]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_default_dtype_of_16_bits_changes_neither_state_nor_parameters(case, default_dtype, dtype):
    expected = with_default(case, default_dtype, torch.float32)
    assert_identical(with_default(case, default_dtype, dtype), expected)


def test_a_default_dtype_of_float64_changes_neither_state_nor_parameters(case, default_dtype):
    expected = with_default(case, default_dtype, torch.float32)
    assert_identical(with_default(case, default_dtype, torch.float64), expected)


def test_training_a_module_keeps_its_parameters_the_same_objects(case):
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    before = list(model.parameters())
    pointers = [param.data_ptr() for param in before]
    train(case.make(model.parameters()), before, range(3))
    assert all(a is b for a, b in zip(model.parameters(), before, strict=True))
    assert [param.data_ptr() for param in model.parameters()] == pointers
