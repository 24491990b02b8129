"""Failures that users of such optimizers have reported elsewhere, each as the test that would have shown it.

Reports that other files already answer:

- a state dict changes dtypes, is aliased, or cannot be loaded: `conventions/test_checkpoint.py`;
- a dummy step of a checkpoint library advances step and moments: likewise;
- compiled steps compile again, or differ from eager ones: `test_compile.py`;
- first moments that are not rotated, second ones that are not reordered when a basis changes; a trajectory that is
  not the published one: `test_soap.py`, `tests/mutations`;
- a gradient that is not finite stays in the state: `test_nonfinite.py`;
- several ranks: `tests/distributed`.
"""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.optim.lr_scheduler import OneCycleLR

from kpop_kernels import backends, newton_schulz
from kpop_kernels.optim import KPOP, SOAP, Muon, QClean
from tests.optim.conventions.workload import assert_identical, parameters, set_gradients, train, values
from tests.optim.registry import CASES

OURS = [case for case in CASES if case.ours]
each_optimizer = pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def steps(optimizer, parameter, grads):
    for grad in grads:
        parameter.grad = grad
        optimizer.step()
        assert parameter.isfinite().all()


@each_optimizer
def test_a_factor_of_rank_7_with_hundreds_of_rows_is_decomposed(case):
    """float32 decompositions of such factors fail on some devices, or give back what was in memory."""
    parameter = nn.Parameter(torch.zeros(20, 300))
    optimizer = case.make([parameter])
    G = normal(20, 7) @ normal(7, 300, seed=1)
    steps(optimizer, parameter, [G] * 11)
    assert optimizer.failed_refreshes == 0
    assert torch.sum(parameter * G) < 0


@each_optimizer
def test_a_thousand_gradients_of_almost_nothing_do_not_end_in_nan(case):
    parameter = nn.Parameter(torch.zeros(4, 3))
    optimizer = case.make([parameter])
    steps(optimizer, parameter, [1e-25 * normal(4, 3, seed=seed) for seed in range(200)])
    assert optimizer.failed_refreshes == 0


@each_optimizer
@pytest.mark.parametrize(
    "gradient",
    [torch.eye(6), torch.ones(6, 6), torch.eye(6).repeat(1, 2), torch.zeros(6, 6).fill_diagonal_(1e-20)],
    ids=["identity", "one row six times", "two identities", "tiny identity"],
)
def test_repeated_eigenvalues_converge(case, gradient):
    parameter = nn.Parameter(torch.zeros_like(gradient))
    optimizer = case.make([parameter])
    steps(optimizer, parameter, [gradient] * 11)
    assert optimizer.failed_refreshes == 0


@each_optimizer
def test_a_layer_in_bfloat16_trains_with_its_own_gradients(case):
    layer = nn.Linear(4, 3).bfloat16()
    optimizer = case.make(layer.parameters())
    before = values(layer.parameters())
    for seed in range(3):
        optimizer.zero_grad()
        layer(normal(8, 4, seed=seed).bfloat16()).square().mean().backward()
        optimizer.step()
    assert {p.dtype for p in layer.parameters()} == {torch.bfloat16}
    assert not any(torch.equal(old, new) for old, new in zip(before, layer.parameters(), strict=True))


@each_optimizer
def test_a_dead_layer_does_not_stop_a_resumed_run(case):
    params = parameters()
    optimizer = case.make(params)
    train(optimizer, params[:2], range(2))
    resumed = case.make(params)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for param in params:
        param.grad = None
    dead = values(params[2:])
    train(resumed, params[:2], [2])
    assert_identical(values(params[2:]), dead)
    train(resumed, params, [3])
    assert not torch.equal(params[2], dead[0])


@each_optimizer
def test_state_can_be_saved_right_after_construction(case):
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    before = values(model.parameters())
    optimizer = case.make(model.parameters())
    saved = get_optimizer_state_dict(model, optimizer)
    assert saved["state"].keys() == dict(model.named_parameters()).keys()
    assert all(state["step"] == 0 for state in saved["state"].values())
    assert_identical(values(model.parameters()), before)


@each_optimizer
def test_a_schedule_that_writes_rates_and_betas_is_followed(case):
    params = parameters()
    optimizer = case.make(params)
    scheduler = OneCycleLR(optimizer, max_lr=2 * case.lr, total_steps=8)
    rates, betas = [], []
    for step in range(7):
        rates.append(optimizer.param_groups[0]["lr"])
        betas.append(optimizer.param_groups[0]["betas"][0])
        set_gradients(params, step)
        optimizer.step()
        scheduler.step()
    assert max(rates) == pytest.approx(2 * case.lr, rel=0.05)
    assert len(set(rates)) == 7
    assert len(set(betas)) > 3
    assert all(param.isfinite().all() for param in params)


def test_momentum_is_orthogonalized_once_a_step_however_many_batches_it_has():
    layer = nn.Linear(6, 5, bias=False)
    optimizer = Muon(layer.parameters())
    with backends.trace() as served:
        for seed in range(4):
            (layer(normal(8, 6, seed=seed)).square().mean() / 4).backward()
        optimizer.step()
    assert sum(calls for (op, _), calls in served.items() if op == "newton_schulz_foreach") == 1


def test_orthogonalizing_a_wide_matrix_again_and_again_stays_finite_and_the_same():
    G = normal(128, 352)
    first = newton_schulz(G)
    assert first.isfinite().all()
    assert all(torch.equal(newton_schulz(G), first) for _ in range(3))


def test_a_layer_is_excepted_by_name_whatever_its_index_or_copy():
    """The exception is in the group, so that copies and checkpoints have it; it holds from the first step."""
    model = nn.ModuleDict({"embed": nn.Linear(64, 64, bias=False), "mix": nn.Linear(64, 64, bias=False)})
    optimizer = QClean(model.named_parameters(), rules={"embed.*": "adam"})
    copied_model, copied = copy.deepcopy((model, optimizer))
    for net, opt in ((model, optimizer), (copied_model, copied)):
        for parameter in net.parameters():
            parameter.grad = normal(64, 64)
        opt.step()
        assert "U_L_codes" not in opt.state[net["embed"].weight]
        assert "U_L_codes" in opt.state[net["mix"].weight]


def test_a_projection_whose_hooks_never_fire_takes_its_factors_from_gradients_and_says_so():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    optimizer = KPOP(attention.named_parameters(), lr=1e-2)
    optimizer.attach(attention)
    x = normal(4, 5, 8)
    for _ in range(2):
        optimizer.zero_grad()
        attention(x, x, x)[0].square().mean().backward()
        optimizer.step()
    weight = attention.out_proj.weight
    assert optimizer.state[weight]["L"].count_nonzero() > 0
    (line,) = (row for row in optimizer.explain().splitlines() if row.startswith("out_proj.weight"))
    assert "gradients" in line


def test_entries_that_never_had_a_gradient_divide_by_nothing():
    parameter = nn.Parameter(torch.ones(6, 4))
    optimizer = SOAP([parameter], rules={"*": "adam"})
    G = torch.zeros(6, 4)
    G[0] = 1.0
    steps(optimizer, parameter, [G] * 3)
    assert torch.equal(parameter[1:], torch.ones(5, 4))


def test_parameters_that_the_model_no_longer_uses_are_told_apart():
    """An optimizer that was built before the model's parameters were replaced trains what nobody uses."""
    model = nn.Sequential(nn.Linear(4, 3))
    optimizer = KPOP(model.named_parameters())
    model[0].weight = nn.Parameter(normal(3, 4))
    optimizer.attach(model)
    (line,) = (row for row in optimizer.explain().splitlines() if row.startswith("0.weight"))
    assert "no Linear, Conv2d or Embedding uses it as its weight" in line
