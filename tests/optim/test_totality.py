"""The table optimizer × case: every shape, layout and value of a gradient that can arrive is served or refused.

What the rows are compared with bit for bit is in `tests/optim/conventions`; here each cell says that a parameter
of that kind trains (or is left alone, or is refused in a sentence) and that its neighbour trains as if it were not
there.
"""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from tests.optim.conventions.workload import assert_identical, gradient, snapshot, values
from tests.optim.registry import CASES

OURS = [case for case in CASES if case.ours]
STEPS = 12


def plain(param, step):
    return gradient(param, step)


def scaled(factor):
    return lambda param, step: factor * gradient(param, step)


def zero(param, step):
    return torch.zeros_like(param)


def none(param, step):
    return None


def non_finite(param, step):
    bad = gradient(param, step)
    bad.view(-1)[step % bad.numel()] = (torch.nan, torch.inf, -torch.inf)[step % 3]
    return bad


def frozen_from_4_to_8(param, step):
    return None if 4 <= step < 8 else gradient(param, step)


def sparse(param, step):
    return gradient(param, step).to_sparse()


def strided(shape):
    """Every other element of a buffer."""
    return nn.Parameter(torch.ones(*shape, 2)[..., 0])


def channels_last(shape):
    return nn.Parameter(torch.ones(shape).contiguous(memory_format=torch.channels_last))


@dataclass(frozen=True)
class Kind:
    """One row: a parameter, its gradients, and what must become of it.

    Attributes:
        make: Makes the parameter of a shape.
        shape: The shape.
        grad: Gradient by parameter and step.
        outcome: "moves", "stays", "may move" (a gradient below eps moves where the method normalizes it), or a
            pattern of the message with which it is refused.
        limit: Largest move of an element in a step over the learning rate.
    """

    shape: tuple[int, ...]
    outcome: str = "moves"
    make: object = lambda shape: nn.Parameter(torch.ones(shape))
    grad: object = plain
    limit: float = 50.0


KINDS = {
    "()": Kind(()),
    "(0,)": Kind((0,), "stays"),
    "(0, 3)": Kind((0, 3), "stays"),
    "(3, 0)": Kind((3, 0), "stays"),
    "(1,)": Kind((1,)),
    "(1, 1)": Kind((1, 1)),
    "(1, 7)": Kind((1, 7)),
    "(7, 1)": Kind((7, 1)),
    "60000 x 8": Kind((60000, 8)),
    "3-D": Kind((3, 4, 5)),
    "3-D, empty": Kind((0, 4, 5), "stays"),
    "4-D channels_last": Kind((4, 3, 2, 2), make=channels_last),
    "not contiguous": Kind((6, 4), make=strided),
    "bfloat16": Kind((6, 4), make=lambda shape: nn.Parameter(torch.ones(shape, dtype=torch.bfloat16))),
    "float16": Kind((6, 4), make=lambda shape: nn.Parameter(torch.ones(shape, dtype=torch.float16))),
    "float64": Kind((6, 4), make=lambda shape: nn.Parameter(torch.ones(shape, dtype=torch.float64))),
    "frozen in mid-run": Kind((6, 4), grad=frozen_from_4_to_8),
    "gradient None": Kind((6, 4), "stays", grad=none),
    "gradient zero": Kind((6, 4), "stays", grad=zero),
    "gradient NaN or Inf": Kind((6, 4), "stays", grad=non_finite),
    "gradient 1e-30": Kind((6, 4), "may move", grad=scaled(1e-30)),
    "gradient 1e18": Kind((6, 4), grad=scaled(1e18)),
    "gradient sparse": Kind((6, 4), "does not support sparse gradients", grad=sparse),
    "complex": Kind(
        (6, 4),
        "does not support complex parameters",
        make=lambda shape: nn.Parameter(torch.ones(shape, dtype=torch.complex64)),
        grad=lambda param, step: torch.ones_like(param),
    ),
}


def neighbour():
    return nn.Parameter(torch.eye(5, 3))


def step(optimizer, pairs, index):
    for param, grad in pairs:
        param.grad = grad(param, index)
    optimizer.step()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)
def test_every_kind_of_parameter_is_served_or_refused_beside_a_neighbour_that_trains(case, kind):
    param, other, alone = kind.make(kind.shape), neighbour(), neighbour()
    optimizer = case.make([other, param], weight_decay=0.0)
    expected = case.make([alone], weight_decay=0.0)
    pairs = [(other, plain), (param, kind.grad)]
    if kind.outcome not in ("moves", "stays", "may move"):
        before = snapshot(optimizer)
        with pytest.raises(RuntimeError, match=f"{case.cls.__name__} {kind.outcome}"):
            step(optimizer, pairs, 0)
        assert_identical(snapshot(optimizer), before)
        return

    start, layout = values([param])[0], param.stride()
    for index in range(STEPS):
        before = values([param])[0]
        step(optimizer, pairs, index)
        step(expected, [(alone, plain)], index)
        assert param.isfinite().all()
        if param.numel():
            assert (param - before).abs().max() <= kind.limit * case.lr
    assert (param.shape, param.stride()) == (kind.shape, layout)
    if kind.outcome != "may move":
        assert torch.equal(param, start) == (kind.outcome == "stays")
    assert optimizer.skipped == (STEPS if kind.grad is non_finite else 0)
    assert_identical(values([other]), values([alone]))


@pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)
def test_tied_parameters_are_one_and_train_as_one(case):
    """An embedding tied to a decoder: given twice it is refused as torch refuses it, given once it trains."""
    embedding, decoder = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
    decoder.weight = embedding.weight
    model = nn.Sequential(embedding, decoder)
    with pytest.warns(UserWarning, match="duplicate"):
        case.make([embedding.weight, decoder.weight])
    optimizer = case.make(model.parameters())
    before = values([embedding.weight])
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.arange(6)).square().mean().backward()
        optimizer.step()
    assert decoder.weight is embedding.weight
    assert [state["step"].item() for state in optimizer.state.values()] == [3]
    assert not torch.equal(embedding.weight, before[0])
