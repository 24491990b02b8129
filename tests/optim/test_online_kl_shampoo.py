"""Online KL Shampoo against its oracle and its golden step, and what surrounds it."""

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from kpop_kernels import backends
from kpop_kernels.optim import (
    OnlineKLShampoo,
    online_kl_shampoo,
    spectral_mup_init_,
    state_bytes,
    warmup_stable_decay,
)
from kpop_kernels.optim._triangle import pack, unpack
from python_ref.optim.online_kl_shampoo import OnlineKLShampoo as Reference
from tests.optim.conventions.test_checkpoint import reloaded
from tests.optim.trajectories import SHAPES, gradients, run

GOLDEN = json.loads((Path(__file__).parents[1] / "vectors" / "golden.json").read_text())["okls_step_0"]
LR = 0.05


def exact(params, **options):
    """The roots by eigenvalues: Newton–Schulz is exact to 1e-4 only, in float64 too."""
    return OnlineKLShampoo(params, lr=LR, method="eigh", **options)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.0, "eps": 1e-3}], ids=["default", "eps"])
def test_follows_the_oracle_in_float64(shape, options):
    with backends.trace() as served:
        for found, expected, *_ in run(
            shape, lambda p: exact(p, **options), lambda W: Reference(W, lr=LR, **options)
        ):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert served["inverse_root_foreach", "composite"] == 21


@pytest.mark.parametrize("shape", [(3, 5), (40, 17)], ids=str)
def test_follows_the_oracle_in_float32(shape):
    """20 steps of lr 0.05 move entries by up to 0.2; float32 stays within 5e-5, 8e-6 were measured."""
    make = lambda params: OnlineKLShampoo(params, lr=LR)
    with backends.trace() as served:
        for found, expected, *_ in run(shape, make, lambda W: Reference(W, lr=LR), dtype=torch.float32):
            torch.testing.assert_close(found, expected, rtol=0, atol=5e-5)
    assert served["inverse_root_foreach", "cpu"] == 21


def test_golden_first_step():
    parameter = nn.Parameter(torch.tensor(GOLDEN["W0"], dtype=torch.float64))
    parameter.grad = torch.tensor(GOLDEN["G"], dtype=torch.float64)
    optimizer = OnlineKLShampoo([parameter], method="eigh")
    (group,) = optimizer.param_groups
    assert (group["lr"], *group["betas"], group["eps"], group["weight_decay"]) == tuple(
        GOLDEN[key] for key in ("lr", "beta1", "beta2", "eps", "weight_decay")
    )
    optimizer.step()
    W1, P_a = (torch.tensor(GOLDEN[key], dtype=torch.float64) for key in ("W1", "P_a"))
    torch.testing.assert_close(parameter.detach(), W1, rtol=0, atol=1e-9)
    torch.testing.assert_close(unpack(optimizer.state[parameter]["P_L"]), P_a, rtol=0, atol=1e-9)
    assert online_kl_shampoo.nesterov_variance(0.9684) == pytest.approx(GOLDEN["nesterov_variance"], rel=1e-8)


def test_factors_use_the_roots_of_the_last_step_and_the_update_those_of_this_one():
    """Stale or early roots are seen by a golden second step: both parts recomputed here from the state between."""
    parameter = nn.Parameter(torch.zeros(4, 3, dtype=torch.float64))
    optimizer = exact([parameter], weight_decay=0.0, eps=0.0)
    first, second = gradients((4, 3), 2)
    parameter.grad = first
    optimizer.step()
    before = {key: unpack(optimizer.state[parameter][key]) for key in ("L", "R", "P_L", "P_R")}
    M, W = optimizer.state[parameter]["exp_avg"].clone(), parameter.detach().clone()
    parameter.grad = second
    optimizer.step()
    beta1, beta2 = optimizer.param_groups[0]["betas"]
    half = second @ before["P_R"]
    L = beta2 * before["L"] + (1 - beta2) / 3 * half @ half.T
    torch.testing.assert_close(unpack(optimizer.state[parameter]["L"]), L, rtol=0, atol=1e-12)
    P_L, P_R = (unpack(optimizer.state[parameter][key]) for key in ("P_L", "P_R"))
    torch.testing.assert_close(P_L @ L @ P_L, torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-9)
    N = beta1 * (beta1 * M + (1 - beta1) * second) + (1 - beta1) * second
    moved = W - parameter.detach()
    direction = P_L @ N @ P_R
    torch.testing.assert_close(moved / moved.norm(), direction / direction.norm(), rtol=0, atol=1e-12)


def decays(lrs, **options):
    """The part of a weight that decay takes at each rate: what a twin without decay does is subtracted."""
    parameter = nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    optimizer = exact([parameter], weight_decay=0.5, **options)
    twin = nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    undecayed = exact([twin], weight_decay=0.0)
    ratios = []
    for lr, G in zip(lrs, gradients((2, 2), len(lrs)), strict=True):
        for p, o in ((parameter, optimizer), (twin, undecayed)):
            o.param_groups[0]["lr"] = lr
            p.grad = G
        before, moved = parameter.detach().clone(), twin.detach().clone()
        optimizer.step()
        undecayed.step()
        kept = (parameter - (twin - moved)) / before
        ratios.append(1 - kept.mean().item())
    return ratios


def test_decay_falls_with_the_square_of_the_rate():
    assert decays([LR, LR / 2, LR / 10]) == pytest.approx([0.5 * LR, 0.5 * LR / 4, 0.5 * LR / 100], rel=1e-9)
    assert decays([LR / 2], lr_peak=2 * LR) == pytest.approx([0.5 * LR / 8], rel=1e-9)


def test_each_group_has_its_own_peak_and_a_peak_of_zero_divides_nothing():
    params = [nn.Parameter(torch.ones(2, 2)) for _ in range(3)]
    optimizer = OnlineKLShampoo([{"params": params[:1]}, {"params": params[1:2], "lr": 0.25}], lr=0.125)
    optimizer.add_param_group({"params": params[2:], "lr": 0.0})
    assert [group["lr_peak"] for group in optimizer.param_groups] == [0.125, 0.25, 0.0]
    optimizer.param_groups[2]["lr"] = 0.5
    for p in params:
        p.grad = torch.ones(2, 2)
    optimizer.step()
    assert all(p.isfinite().all() and not torch.equal(p, torch.ones(2, 2)) for p in params)


def test_the_peak_survives_a_checkpoint_and_a_schedule():
    parameter = nn.Parameter(torch.ones(2, 2))
    optimizer = OnlineKLShampoo([parameter], lr=torch.tensor(0.5))
    scheduler = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    parameter.grad = torch.ones(2, 2)
    optimizer.step()
    scheduler.step()
    fresh = OnlineKLShampoo([parameter], lr=0.125)
    fresh.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert (fresh.param_groups[0]["lr"], fresh.param_groups[0]["lr_peak"]) == (0.25, 0.5)


def test_zero_gradients_do_not_use_up_the_warm_start():
    params = [nn.Parameter(torch.zeros(4, 3, dtype=torch.float64)) for _ in range(2)]
    dummied, plain = (exact([p], weight_decay=0.0) for p in params)
    params[0].grad = torch.zeros(4, 3, dtype=torch.float64)
    for _ in range(3):
        dummied.step()
    for G in gradients((4, 3), 3):
        for p, optimizer in zip(params, (dummied, plain), strict=True):
            p.grad = G
            optimizer.step()
    assert torch.equal(*params)


def test_a_long_side_has_no_factor_and_its_root_is_the_identity():
    parameter = nn.Parameter(torch.zeros(6, 3, dtype=torch.float64))
    optimizer = exact([parameter], max_precond_dim=4, weight_decay=0.0)
    (parameter.grad,) = gradients((6, 3), 1)
    optimizer.step()
    state = optimizer.state[parameter]
    assert set(state) == {"step", "exp_avg", "R", "P_R"}
    direction = -(state["exp_avg"] @ unpack(state["P_R"]))
    found = parameter.detach()
    torch.testing.assert_close(found / found.norm(), direction / direction.norm(), rtol=0, atol=1e-12)
    assert "longer than max_precond_dim=4" in optimizer.explain()


def test_a_root_that_is_not_finite_is_replaced_by_the_previous_one_and_counted():
    parameter = nn.Parameter(torch.zeros(2, 4, 3))
    optimizer = OnlineKLShampoo([parameter])
    for step, G in enumerate(gradients((2, 4, 3), 3)):
        parameter.grad = G.float()
        if step == 2:
            state = optimizer.state[parameter]
            state["L"][1, 0] = torch.nan
            before = state["P_L"].clone()
        optimizer.step()
    assert optimizer.failed_refreshes == 1
    assert torch.equal(optimizer.state[parameter]["P_L"][1], before[1])
    assert not torch.equal(optimizer.state[parameter]["P_L"][0], before[0])
    assert parameter.isfinite().all()


def test_state_of_a_matrix_is_packed():
    parameter = nn.Parameter(torch.zeros(5, 12))
    optimizer = OnlineKLShampoo([parameter])
    parameter.grad = torch.randn(5, 12)
    optimizer.step()
    assert state_bytes(optimizer) == 4 * (5 * 12 + 5 * 6 + 12 * 13) + 4


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (4, 4), (3, 5, 5)], ids=str)
def test_packing_a_symmetric_matrix_keeps_its_upper_triangle(shape):
    S = torch.randn(shape)
    S = S + S.mT
    n = shape[-1]
    assert pack(S).shape == (*shape[:-2], n * (n + 1) // 2)
    assert torch.equal(unpack(pack(S)), S)


@pytest.mark.parametrize(("shape", "m", "n"), [((600, 200), 600, 200), ((2, 200, 500), 200, 500)], ids=str)
def test_spectral_initialization_gives_the_operator_norm_it_names(shape, m, n):
    weight = torch.empty(shape)
    assert spectral_mup_init_(weight, 0.5, generator=torch.Generator().manual_seed(0)) is weight
    norms = torch.linalg.matrix_norm(weight, 2)
    torch.testing.assert_close(norms, torch.full_like(norms, 0.5 * (m / n) ** 0.5), rtol=0.03, atol=0)


def test_spectral_initialization_refuses_vectors():
    with pytest.raises(ValueError, match=r"weight has shape \(3,\), it must be a matrix"):
        spectral_mup_init_(torch.empty(3))


def test_the_schedule_warms_up_stays_and_falls():
    optimizer = OnlineKLShampoo([nn.Parameter(torch.zeros(2, 2))], lr=1.0)
    scheduler = warmup_stable_decay(
        optimizer, total_steps=20, warmup_steps=4, decay_ratio=0.5, min_lr_factor=0.1
    )
    rates = []
    for _ in range(23):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates[:11] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1, 1])
    assert rates[11:21] == pytest.approx([1 - 0.09 * k for k in range(1, 11)])
    assert rates[21:] == pytest.approx([0.1, 0.1])
    fresh = warmup_stable_decay(optimizer, total_steps=100)
    fresh.load_state_dict(reloaded(scheduler.state_dict()))
    assert fresh.lr_lambdas == scheduler.lr_lambdas


@pytest.mark.parametrize(
    "options",
    [{"total_steps": 0}, {"warmup_steps": -1}, {"decay_ratio": 1.5}, {"min_lr_factor": -0.1}],
    ids=str,
)
def test_the_schedule_refuses_what_it_cannot_do(options):
    optimizer = OnlineKLShampoo([nn.Parameter(torch.zeros(2, 2))])
    with pytest.raises(ValueError, match=next(iter(options))):
        warmup_stable_decay(optimizer, **{"total_steps": 100, **options})
