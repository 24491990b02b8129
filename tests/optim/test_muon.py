"""Muon against its oracle, against torch.optim.Muon, and what it must be invariant to."""

import pytest
import torch
from torch import nn

from kpop_kernels import backends, coefficients
from kpop_kernels.optim import Muon, state_bytes
from python_ref.newton_schulz import polar_factor
from python_ref.optim.muon import Muon as Reference
from tests.optim.trajectories import SHAPES, gradients, run

MUON = (3.4445, -4.7750, 2.0315)
OPTIONS = {
    "default": {},
    "no Nesterov, no decay": {"nesterov": False, "weight_decay": 0.0},
    "own coefficients": {"ns_coefficients": (2.0, -1.5, 0.5), "ns_steps": 7},
    "polar_express": {"ns_coefficients": "polar_express"},
    "match_rms_adamw": {"adjust_lr_fn": "match_rms_adamw"},
    "spectral": {"adjust_lr_fn": "spectral"},
}


def reference(**options):
    given, steps = options.get("ns_coefficients", "muon"), options.get("ns_steps", 5)
    polynomials = [given] * steps if isinstance(given, tuple) else coefficients.polar_schedule(given, steps)
    kept = {key: value for key, value in options.items() if key in ("nesterov", "weight_decay", "momentum")}
    adjustment = options.get("adjust_lr_fn", "original")
    return lambda W: Reference(W, lr=1e-2, polynomials=polynomials, adjustment=adjustment, **kept)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_follows_the_oracle_in_float64(shape, options):
    with backends.trace() as served:
        for found, expected, *_ in run(shape, lambda p: Muon(p, lr=1e-2, **options), reference(**options)):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert served["newton_schulz_foreach", "composite"] == 20


@pytest.mark.parametrize("shape", [(3, 5), (40, 17)], ids=str)
def test_follows_the_oracle_in_float32(shape):
    """20 steps of lr 1e-2 move entries by up to 0.3; float32 stays within 1e-5, 1.3e-6 were measured."""
    make = lambda params: Muon(params, lr=1e-2)
    with backends.trace() as served:
        for found, expected, *_ in run(shape, make, reference(), dtype=torch.float32):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert served["newton_schulz_foreach", "cpu"] == 20


@pytest.mark.parametrize("adjust_lr_fn", [None, "original", "match_rms_adamw"])
@pytest.mark.parametrize("shape", [(8, 8), (40, 17), (17, 40)], ids=str)
def test_agrees_with_torch_up_to_its_bfloat16(shape, adjust_lr_fn):
    """torch orthogonalizes in bfloat16, which has 3 digits: 20 steps end 0.5 % apart."""
    ours, theirs = (nn.Parameter(torch.zeros(shape)) for _ in range(2))
    options = {"lr": 1e-2, "weight_decay": 0.1, "adjust_lr_fn": adjust_lr_fn}
    optimizers = Muon([ours], **options), torch.optim.Muon([theirs], **options)
    for G in gradients(shape, 20):
        ours.grad, theirs.grad = G.float(), G.float()
        for optimizer in optimizers:
            optimizer.step()
    moved = torch.linalg.vector_norm(theirs)
    assert torch.linalg.vector_norm(ours - theirs) < 0.01 * moved
    for state in (optimizers[0].state[ours], optimizers[1].state[theirs]):
        assert state["momentum_buffer"].shape == shape
    torch.testing.assert_close(
        optimizers[0].state[ours]["momentum_buffer"], optimizers[1].state[theirs]["momentum_buffer"]
    )


def one_step(G, **options):
    parameter = nn.Parameter(torch.zeros_like(G))
    parameter.grad = G
    Muon([parameter], lr=1.0, weight_decay=0.0, **options).step()
    return -parameter.detach()


def test_enough_polar_express_steps_give_the_polar_factor():
    (G,) = gradients((12, 7), 1)
    update = one_step(G, ns_coefficients="polar_express", ns_steps=10, adjust_lr_fn="spectral")
    torch.testing.assert_close(update, (12 / 7) ** 0.5 * polar_factor(G), rtol=0, atol=1e-10)


def test_the_scale_of_the_gradient_does_not_matter():
    (G,) = gradients((12, 7), 1)
    for scale in (1e-12, 1e12):
        torch.testing.assert_close(one_step(scale * G), one_step(G), rtol=1e-12, atol=1e-12)


def test_the_update_turns_with_the_gradient():
    """Orthogonal Q on the left: the update of QG is Q times that of G."""
    (G,) = gradients((9, 6), 1)
    Q = torch.linalg.qr(next(gradients((9, 9), 1))).Q
    torch.testing.assert_close(one_step(Q @ G), Q @ one_step(G), rtol=0, atol=1e-12)


def test_a_stack_of_experts_trains_as_separate_matrices():
    stack = nn.Parameter(torch.zeros(3, 4, 6, dtype=torch.float64))
    experts = [nn.Parameter(torch.zeros(4, 6, dtype=torch.float64)) for _ in range(3)]
    together, apart = Muon([stack], lr=0.1), Muon(experts, lr=0.1)
    for G in gradients((3, 4, 6), 5):
        stack.grad = G
        for expert, gradient in zip(experts, G, strict=True):
            expert.grad = gradient
        together.step()
        apart.step()
    torch.testing.assert_close(stack.detach(), torch.stack([e.detach() for e in experts]), rtol=0, atol=1e-13)


def test_state_of_a_matrix_is_its_momentum():
    parameter = nn.Parameter(torch.zeros(5, 12))
    optimizer = Muon([parameter])
    parameter.grad = torch.randn(5, 12)
    optimizer.step()
    assert state_bytes(optimizer) == 4 * 5 * 12 + 4


def test_explain_says_what_is_orthogonalized():
    params = [nn.Parameter(torch.zeros(shape)) for shape in [(3, 4), (4,), (2, 3)]]
    lines = Muon(params, rules={"#2": "adam"}).explain().splitlines()
    assert ["orthogonalized" in line for line in lines] == [False, True, False, False]
    assert ["Adam" in line for line in lines] == [False, False, True, True]
