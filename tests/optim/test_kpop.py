"""KPOP against its oracle, the article's numbers, and what it must be invariant to."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from kpop_kernels import backends
from kpop_kernels.optim import KPOP, state_bytes
from python_ref.optim.kpop import KPOP as Reference

GOLDEN = json.loads((Path(__file__).parents[1] / "vectors" / "golden.json").read_text())["kpop_article_2x2"]


def linear_run(shape, *, steps=20, rows=64, dtype=torch.float64, seed=0, **options):
    """Yield (layer, optimizer, oracle) after each step on random data.

    The loss is a sum: output gradients of a mean are so small beside the identity that the article starts its
    factors with that the eigenvectors are ill-conditioned, and two float64 programs differ by 1e-8.
    """
    m, n = shape
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Linear(n, m, bias=False, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(m, n, generator=generator, dtype=torch.float64))
    reference = Reference(
        layer.weight,
        lr=1e-2,
        beta2=0.999 if options.get("mode") == "seed" else 0.95,
        weight_decay=options.get("weight_decay", 0.0),
        frequency=options.get("precondition_frequency", 10),
        qr=options.get("method") == "qr",
        seed=options.get("mode") == "seed",
    )
    optimizer = KPOP(layer.parameters(), lr=1e-2, **options)
    optimizer.attach(layer)
    spread = torch.logspace(0, -1, n, dtype=torch.float64)
    target = torch.randn(rows, m, generator=generator, dtype=torch.float64).to(dtype)
    for _ in range(steps):
        x = (torch.randn(rows, n, generator=generator, dtype=torch.float64) * spread).to(dtype)
        optimizer.zero_grad()
        y = layer(x)
        y.retain_grad()
        (0.5 * (y - target).square().sum()).backward()
        optimizer.step()
        reference.step(layer.weight.grad, x, y.grad)
        yield layer, optimizer, reference


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (3, 5), (8, 8), (40, 17)], ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"precondition_frequency": 1},
        {"method": "qr", "precondition_frequency": 3},
        {"weight_decay": 0.1},
        {"mode": "seed"},
    ],
    ids=["default", "refresh-each-step", "qr", "decay", "seed"],
)
def test_follows_the_oracle_in_float64(shape, options):
    with backends.trace() as served:
        for layer, _, reference in linear_run(shape, **options):
            torch.testing.assert_close(layer.weight.detach(), reference.W, rtol=1e-10, atol=1e-10)
    assert served["kron_adam_foreach_", "composite"] == 20


@pytest.mark.parametrize("method", ["eigh", "qr"])
@pytest.mark.parametrize("shape", [(3, 5), (40, 17)], ids=str)
def test_follows_the_oracle_in_float32(shape, method):
    """20 steps of lr 1e-2 move entries by up to 0.2; float32 stays within 1e-4 of the float64 oracle."""
    with backends.trace() as served:
        for layer, _, reference in linear_run(shape, dtype=torch.float32, method=method):
            torch.testing.assert_close(layer.weight.detach().double(), reference.W, rtol=0, atol=1e-4)
    assert served["kron_adam_foreach_", "cpu"] == 20
    assert served["refresh_eigenbasis", "cpu"] == 6


def test_gradient_factors_follow_the_oracle():
    """Without an attached model the factors are those of the gradient: rows of G and of Gᵀ.

    In the first step the basis comes from the gradient it rotates, so that rounding decides the sign of entries
    that are zero in exact arithmetic; the oracle takes over after it.
    """
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(6, 6, dtype=torch.float64))
    reference = Reference(weight, lr=1e-2)
    optimizer = KPOP([weight], lr=1e-2)
    for step in range(25):
        weight.grad = torch.randn(6, 6, dtype=torch.float64)
        optimizer.step()
        reference.step(weight.grad, weight.grad, weight.grad.T)
        if step == 0:
            state = optimizer.state[weight]
            torch.testing.assert_close(state["L"], reference.L)
            torch.testing.assert_close(state["R"], reference.R)
            reference.W, reference.m, reference.v, reference.Q_L, reference.Q_R = (
                t.detach().clone()
                for t in (weight, state["exp_avg"], state["exp_avg_sq"], state["Q_L"], state["Q_R"])
            )
        torch.testing.assert_close(weight.detach(), reference.W, rtol=1e-10, atol=1e-10)


def test_article_example():
    """The 2x2 example with the right numbers: eigenvalues, bases, rotated gradient, first Adam step."""
    C, R, G = (torch.tensor(GOLDEN[key], dtype=torch.float64) for key in ("C", "R", "G"))
    weight = nn.Parameter(torch.zeros(2, 2, dtype=torch.float64))
    optimizer = KPOP([weight], lr=0.1, mode="seed", factor_beta=0.0)
    weight.grad = G
    optimizer._capture = _ArticleStatistics(weight, left=R, right=C)
    optimizer.step()
    state = optimizer.state[weight]
    expected = torch.tensor(GOLDEN["first_adam_step_lr_0p1"], dtype=torch.float64)
    torch.testing.assert_close(weight.detach(), expected, rtol=0, atol=1e-7)
    rotated = state["exp_avg"].flip(0, 1) / 0.1
    torch.testing.assert_close(
        rotated.abs(), torch.tensor(GOLDEN["G_rotated"], dtype=torch.float64), rtol=0, atol=1e-9
    )
    for basis, key in (("Q_L", "Q_R"), ("Q_R", "Q_C")):
        golden = torch.tensor(GOLDEN[key], dtype=torch.float64)
        torch.testing.assert_close(state[basis].flip(1).abs(), golden.abs(), rtol=0, atol=1e-6)


class _ArticleStatistics:
    """A capture that hands out given second moments."""

    def __init__(self, parameter, *, left, right):
        self._sums = {parameter: (left, right)}

    def sites(self, parameter):
        return ["Linear"]

    def take(self, parameter):
        from kpop_kernels.optim._capture import LayerSums, SideSum

        left, right = (SideSum(moment, rows=1) for moment in self._sums.pop(parameter))
        return LayerSums({"Linear": left}, {"Linear": right})


@pytest.mark.parametrize("change", ["sign", "order"])
def test_a_flipped_or_permuted_basis_changes_nothing(change):
    """The same basis with other signs, or in another order, with the moments carried over, is the same method."""
    runs = []
    for disturb in (False, True):
        for step, (layer, optimizer, _) in enumerate(linear_run((9, 12), steps=19, dtype=torch.float64)):
            if disturb and step == 4:
                _disturb_basis(optimizer.state[layer.weight], change)
        runs.append(layer.weight.detach())
    torch.testing.assert_close(runs[0], runs[1], rtol=0, atol=1e-11)


def _disturb_basis(state, change):
    from kpop_kernels import rebase_moments_

    flipped = {}
    for basis in ("Q_L", "Q_R"):
        old = state[basis]
        n = old.shape[0]
        signs = torch.where(torch.arange(n) % 3 == 0, -1.0, 1.0).to(old)
        state[basis] = old * signs if change == "sign" else old[:, torch.arange(n).roll(2)]
        flipped[basis] = state[basis].mT @ old
    rebase_moments_(state["exp_avg"], state["exp_avg_sq"], flipped["Q_L"], flipped["Q_R"])


def test_state_of_a_matrix_is_what_the_docstring_says():
    layer = nn.Linear(12, 5, bias=False)
    optimizer = KPOP(layer.parameters())
    layer.weight.grad = torch.randn(5, 12)
    optimizer.step()
    assert state_bytes(optimizer) == 4 * (2 * 5 * 12 + 2 * 5**2 + 2 * 12**2) + 4


def test_long_sides_get_no_factor():
    weight = nn.Parameter(torch.randn(64, 4))
    optimizer = KPOP([weight], max_precond_dim=16)
    weight.grad = torch.randn(64, 4)
    optimizer.step()
    assert "Q_L" not in optimizer.state[weight]
    assert optimizer.state[weight]["Q_R"].shape == (4, 4)
    assert "longer than max_precond_dim=16" in optimizer.explain()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr is -1.0, it must not be negative"),
        ({"betas": (0.9, 1.0)}, "betas holds 1.0"),
        ({"factor_beta": 1.5}, "factor_beta holds 1.5"),
        ({"precondition_frequency": 0}, "precondition_frequency is 0"),
        ({"factor_norm": "none"}, "factor_norm is 'none'"),
        ({"mode": "paper"}, "mode is 'paper'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_hyperparameters_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        KPOP([nn.Parameter(torch.ones(2, 2))], **options)


def test_rules_keep_a_side_from_being_captured_and_rotated():
    layer = nn.Linear(4, 3, bias=False)
    optimizer = KPOP(layer.named_parameters(), rules={"weight": "right"})
    optimizer.attach(layer)
    layer(torch.randn(8, 4)).square().mean().backward()
    sums = optimizer._capture.take(layer.weight)
    assert (set(sums.left), set(sums.right)) == (set(), {"Linear"})
    optimizer.step()
    assert {"L", "R"} & set(optimizer.state[layer.weight]) == {"R"}
    assert "rules say 'right'" in optimizer.explain()
