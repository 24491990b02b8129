"""The oracle of inverse roots and polar factors against mathematics and the golden numbers."""

import json
from pathlib import Path

import pytest
import torch

from kpop_kernels import coefficients
from python_ref import inverse_root as roots
from python_ref import newton_schulz as polar

GOLDEN = json.loads((Path(__file__).parents[1] / "vectors/golden.json").read_text())
CHAPTER = GOLDEN["shampoo_chapter"]


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def spd(n, kappa, seed=0):
    generator = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator)).Q
    return (Q * torch.logspace(0, -torch.tensor(kappa).log10().item(), n, dtype=torch.float64)) @ Q.mT


def relative_error(actual, expected):
    return ((actual - expected).norm() / expected.norm()).item()


def test_roots_of_the_shampoo_chapter():
    L = tensor(CHAPTER["L"])
    torch.testing.assert_close(roots.inverse_root(L, 4), tensor(CHAPTER["L_inv_fourth"]), rtol=0, atol=1e-14)
    torch.testing.assert_close(roots.inverse_root(L, 2), tensor(CHAPTER["L_inv_half"]), rtol=0, atol=1e-14)


def test_step_of_the_shampoo_chapter_is_the_polar_factor():
    G = tensor(CHAPTER["G"])
    step = tensor(CHAPTER["L_inv_fourth"]) @ G @ tensor(CHAPTER["R_pinv_fourth"])
    torch.testing.assert_close(step, tensor(CHAPTER["step"]), rtol=0, atol=1e-12)
    torch.testing.assert_close(polar.polar_factor(G), step, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("scale", "key"), [(1, "half_power_singular_values"), (10, "half_power_singular_values_10G")]
)
def test_half_powers_of_the_shampoo_chapter(scale, key):
    G = scale * tensor(CHAPTER["G"])
    left = roots.inverse_root(G @ G.mT, 2)
    _, sigma, Vh = torch.linalg.svd(G, full_matrices=False)
    right = (Vh.mT / sigma) @ Vh
    torch.testing.assert_close(
        torch.linalg.svdvals(left @ G @ right)[:2], tensor(CHAPTER[key]), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("p", [1, 2, 4])
def test_truth_inverts(p):
    A = spd(12, 1e3)
    W = roots.inverse_root(A, p)
    assert relative_error(torch.linalg.matrix_power(W, p) @ A, torch.eye(12, dtype=torch.float64)) < 1e-11
    assert torch.equal(W, W.mT)


def test_damping_shifts_the_spectrum():
    A = spd(6, 10.0)
    delta = 0.3 + 1e-2 * roots.spectrum_bound(A)
    damped = roots.inverse_root(A, 2, damping=0.3, relative_damping=1e-2)
    assert (
        relative_error(damped, roots.inverse_root(A + delta * torch.eye(6, dtype=torch.float64), 2)) < 1e-13
    )
    zero = torch.zeros(3, 3)
    assert torch.equal(roots.inverse_root(zero, 2), zero.double())
    torch.testing.assert_close(
        roots.inverse_root(zero, 2, damping=0.25), 2 * torch.eye(3, dtype=torch.float64)
    )


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_bound_is_strict(n):
    for seed in range(20):
        A = spd(n, 10.0 ** (seed % 6 + 1), seed)
        assert roots.spectrum_bound(A) > torch.linalg.eigvalsh(A).amax()


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("name", ["cushioned", "cans"])
def test_iteration_reaches_the_truth(p, name):
    A = spd(24, 1e4)
    W = roots.iterated_inverse_root(
        A, p, coefficients.inverse_root_schedule(name), coefficients.second_stage()
    )
    assert relative_error(W, roots.inverse_root(A, p)) < 2e-4


def test_coupled_limits_are_inverse_to_each_other():
    Y0 = spd(10, 1e4) / 1.01
    Y, Z = roots.coupled_newton_schulz(Y0, coefficients.schedule(cushion=0.0, steps=12))
    assert relative_error(Y @ Y, Y0) < 1e-9
    assert relative_error(Y @ Z, torch.eye(10, dtype=torch.float64)) < 1e-9


@pytest.mark.parametrize("name", ["polar_express", "cans", "muon"])
@pytest.mark.parametrize("restarts", [(), (2,), (1, 3)])
def test_polar_iterations_are_the_map_of_singular_values(name, restarts):
    X = torch.randn(9, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    schedule = coefficients.polar_schedule(name, 5)
    expected = polar.map_singular_values(X, schedule)
    assert relative_error(polar.newton_schulz(X, schedule), expected) < 1e-12
    assert relative_error(polar.gram_newton_schulz(X, schedule, restarts), expected) < 1e-9


@pytest.mark.parametrize(
    ("name", "steps", "sigma_min", "low", "high"),
    [
        ("muon", 5, 1e-2, 0.682, 1.134),
        ("muon", 5, 1e-3, 0.471, 1.202),
        ("polar_express", 5, 1e-2, 0.873, 1.121),
        ("polar_express", 5, 1e-3, 0.849, 1.121),
        ("cans", 5, 1e-3, 0.884, 1.120),
        ("polar_express", 8, 1e-3, 1.0, 1.0),
    ],
)
def test_range_of_singular_values(name, steps, sigma_min, low, high):
    sigma = torch.logspace(torch.tensor(sigma_min).log10().item(), 0, 20001, dtype=torch.float64)
    for a, b, c in coefficients.polar_schedule(name, steps):
        sigma = a * sigma + b * sigma**3 + c * sigma**5
    # The published ranges were taken with coefficients of four digits.
    assert sigma.min().item() == pytest.approx(low, abs=4e-3)
    assert sigma.max().item() == pytest.approx(high, abs=8e-3)


def test_online_kl_shampoo_step():
    golden = GOLDEN["okls_step_0"]
    G = tensor(golden["G"])
    m, n = G.shape
    phi = G.square().sum()
    eps, beta2 = golden["eps"], golden["beta2"]
    S_a = (m / (n * phi + eps)).sqrt() * G @ G.mT
    S_a += (S_a.norm() / m**0.5 + eps) * torch.eye(m, dtype=torch.float64)
    S_b = (n / (m * phi + eps)).sqrt() * G.mT @ G
    S_b += (S_b.norm() / n**0.5 + eps) * torch.eye(n, dtype=torch.float64)
    half_a, half_b = G @ roots.inverse_root(S_b, 2), roots.inverse_root(S_a, 2) @ G
    S_a = beta2 * S_a + (1 - beta2) / n * half_a @ half_a.mT + eps * torch.eye(m, dtype=torch.float64)
    P_a = roots.inverse_root(S_a, 2)
    torch.testing.assert_close(P_a, tensor(golden["P_a"]), rtol=0, atol=1e-9)
    S_b = beta2 * S_b + (1 - beta2) / m * half_b.mT @ half_b + eps * torch.eye(n, dtype=torch.float64)
    beta1 = golden["beta1"]
    N = (1 - beta1) * (1 + beta1) * G
    U = P_a @ N @ roots.inverse_root(S_b, 2)
    torch.testing.assert_close(U, tensor(golden["U"]), rtol=0, atol=1e-9)
