import inspect
import math

import pytest
import torch
from torch import nn
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, get_error_inputs_for_all_optims

from tests.optim.conventions.workload import (
    assert_identical,
    identical,
    parameters,
    snapshot,
    train,
    trajectory,
    values,
)
from tests.optim.registry import STEPS_TO_SEE_A_HYPERPARAMETER

TORCH_ERRORS = get_error_inputs_for_all_optims("cpu", torch.float32)

INVALID = {
    "lr": (-1.0, math.nan),
    "betas": ((-0.1, 0.9), (1.0, 0.9), (0.9, 1.0), (0.9, math.nan)),
    "eps": (-1.0, math.nan),
    "weight_decay": (-1.0, math.nan),
}


@pytest.mark.parametrize("error", TORCH_ERRORS, ids=[e.optimizer_error_input.desc for e in TORCH_ERRORS])
def test_refuses_what_every_torch_optimizer_refuses(case, error):
    assert error.error_on is OptimizerErrorEnum.CONSTRUCTION_ERROR
    given = error.optimizer_error_input
    # Constructors fill in the groups that they are given, and these are shared by all cases.
    params = parameters() if given.params is None else _fresh(given.params)
    expect = pytest.warns if issubclass(error.error_type, Warning) else pytest.raises
    with expect(error.error_type, match=error.error_regex):
        case.make(params, **given.kwargs)


def _fresh(params):
    groups = isinstance(params, list) and params and isinstance(params[0], dict)
    return [dict(group) for group in params] if groups else params


def test_refuses_an_empty_list_of_parameters(case):
    with pytest.raises(ValueError, match="empty parameter list"):
        case.make([])


def test_refuses_a_parameter_that_is_not_a_leaf(case):
    with pytest.raises(ValueError, match="non-leaf"):
        case.make([parameters()[0] * 2])


def test_refuses_invalid_hyperparameters_with_a_sentence_that_shows_the_value(case):
    defaults = case.make(parameters()).defaults
    for name in INVALID.keys() & defaults.keys():
        for value in INVALID[name]:
            shown = str(next(x for x in value if not 0 <= x < 1) if name == "betas" else value)
            with pytest.raises(ValueError, match=shown):
                case.make(parameters(), **{name: value})


def test_refuses_its_own_invalid_hyperparameters(case):
    for hyperparameters, message in case.invalid:
        with pytest.raises(ValueError, match=message):
            case.make(parameters(), **hyperparameters)


def test_accepts_an_iterator_a_list_groups_and_named_parameters_alike(case):
    def named(params):
        return [(f"p{index}", param) for index, param in enumerate(params)]

    expected = trajectory(case.make, 3)
    for form in (iter, list, named, lambda params: [{"params": params}]):
        assert_identical(trajectory(lambda params, form=form: case.make(form(params)), 3), expected)


def test_named_parameters_keep_their_names(case):
    model = nn.Linear(3, 2)
    (group,) = case.make(model.named_parameters()).param_groups
    assert group["param_names"] == ["weight", "bias"]
    assert group["params"][0] is model.weight


def test_every_hyperparameter_lives_in_the_groups_and_none_on_the_optimizer(case):
    optimizer = case.make(parameters())
    accepted = set(inspect.signature(case.cls).parameters) - {"params"}
    assert accepted <= set(optimizer.defaults)
    assert set(optimizer.defaults) <= set(optimizer.param_groups[0])
    assert not set(optimizer.defaults) & set(vars(optimizer))


def test_every_hyperparameter_is_covered_by_these_tests(case):
    tested = set(case.alternatives) | case.implementation_flags
    assert tested == set(case.make(parameters()).defaults)


def test_each_hyperparameter_of_a_group_overrides_the_default(case):
    def with_override(name, value):
        return lambda params: case.make([{"params": params, name: value}])

    steps = STEPS_TO_SEE_A_HYPERPARAMETER
    default = trajectory(case.make, steps)
    for name, value in case.alternatives.items():
        changed = trajectory(case.make, steps, **{name: value})
        assert not identical(changed[0], default[0]), f"{name}={value} makes no difference"
        assert_identical(trajectory(with_override(name, value), steps), changed)


def test_a_group_added_later_trains_like_one_given_at_construction(case):
    first, *rest = parameters()
    optimizer = case.make([first])
    optimizer.add_param_group({"params": rest, "lr": case.lr / 2})
    train(optimizer, [first, *rest], range(3))

    first, *rest = parameters()
    expected = case.make([{"params": [first]}, {"params": rest, "lr": case.lr / 2}])
    train(expected, [first, *rest], range(3))
    assert_identical(snapshot(optimizer), snapshot(expected))


def test_a_group_added_in_mid_training_starts_afresh(case):
    first, late = parameters()[0], parameters()[2]
    optimizer = case.make([first])
    train(optimizer, [first], range(3))
    optimizer.add_param_group({"params": [late]})
    before = values([first, late])
    train(optimizer, [first, late], [3])
    assert optimizer.state[first]["step"] == 4
    assert optimizer.state[late]["step"] == 1
    assert not any(identical(old, new) for old, new in zip(before, values([first, late]), strict=True))


def test_a_parameter_cannot_be_added_twice(case):
    params = parameters()
    with pytest.raises(ValueError, match="more than one parameter group"):
        case.make(params).add_param_group({"params": params[:1]})


def test_unknown_group_keys_are_kept(case):
    optimizer = case.make([{"params": parameters(), "note": "encoder"}])
    fresh = case.make(parameters())
    fresh.load_state_dict(optimizer.state_dict())
    assert optimizer.param_groups[0]["note"] == fresh.param_groups[0]["note"] == "encoder"


def test_repr_names_the_optimizer_and_shows_its_learning_rate(case):
    text = repr(case.make(parameters()))
    assert text.startswith(case.cls.__name__)
    assert f"lr: {case.lr}" in text
