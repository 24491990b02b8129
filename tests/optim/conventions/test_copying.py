import copy
import pickle

from torch import nn

from tests.optim.conventions.workload import (
    assert_identical,
    parameters,
    snapshot,
    tensors_in,
    train,
    trajectory,
)


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


def params_of(optimizer):
    return [param for group in optimizer.param_groups for param in group["params"]]


def trained(case, steps):
    params = parameters()
    optimizer = case.make(params)
    train(optimizer, params, range(steps))
    return optimizer


def test_an_unpickled_optimizer_trains_on_bit_for_bit(case):
    for steps in (0, 7):
        clone = pickled(trained(case, steps))
        train(clone, params_of(clone), range(steps, 12))
        assert_identical(snapshot(clone), trajectory(case.make, 12))


def test_an_unpickled_optimizer_accepts_another_group(case):
    clone = pickled(trained(case, 2))
    late = nn.Parameter(parameters()[0].detach().clone())
    clone.add_param_group({"params": [late]})
    train(clone, params_of(clone), [2])
    assert clone.state[late]["step"] == 1


def test_a_deep_copy_of_model_and_optimizer_trains_on_apart_from_the_original(case):
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    optimizer = case.make(model.parameters())
    train(optimizer, list(model.parameters()), range(7))
    twin, twin_optimizer = copy.deepcopy((model, optimizer))
    assert all(a is b for a, b in zip(params_of(twin_optimizer), twin.parameters(), strict=True))
    assert not _storages(optimizer) & _storages(twin_optimizer)

    before = copy.deepcopy(snapshot(optimizer))
    train(twin_optimizer, list(twin.parameters()), range(7, 12))
    assert_identical(snapshot(optimizer), before)
    train(optimizer, list(model.parameters()), range(7, 12))
    assert_identical(snapshot(optimizer), snapshot(twin_optimizer))


def _storages(optimizer):
    return {
        t.untyped_storage().data_ptr() for t in [*params_of(optimizer), *tensors_in(dict(optimizer.state))]
    }


def test_copies_have_every_public_attribute(case):
    optimizer = trained(case, 1)
    public = {name for name in vars(optimizer) if not name.startswith("_")}
    for clone in (copy.deepcopy(optimizer), pickled(optimizer)):
        assert {name for name in vars(clone) if not name.startswith("_")} == public
        assert optimizer.defaults.items() <= clone.defaults.items()
