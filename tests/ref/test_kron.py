"""The oracle of rotations and rotated Adam: mathematics, torch.optim, the KPOP article's example."""

import pytest
import torch

from python_ref.kron import adam, rebase_moments, rotate
from tests.matrices import normal, orthogonal, signed_permutation
from tests.vectors import golden

SHAPES = [(1, 1), (1, 5), (5, 1), (4, 7), (33, 17)]


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_rotation_is_the_kronecker_product(generator, m, n):
    G, Q_L, Q_R = normal(generator, m, n), normal(generator, m, m), normal(generator, n, n)
    K = torch.kron(Q_L, Q_R)
    torch.testing.assert_close(rotate(G, Q_L, Q_R).reshape(-1), K.T @ G.reshape(-1))
    torch.testing.assert_close(rotate(G, Q_L, Q_R, inverse=True).reshape(-1), K @ G.reshape(-1))


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_rotation_keeps_the_norm_and_has_an_inverse(generator, m, n):
    G, Q_L, Q_R = normal(generator, 3, m, n), orthogonal(generator, 3, m, m), orthogonal(generator, n, n)
    rotated = rotate(G, Q_L, Q_R)
    torch.testing.assert_close(rotated.norm(dim=(-2, -1)), G.norm(dim=(-2, -1)))
    torch.testing.assert_close(rotate(rotated, Q_L, Q_R, inverse=True), G)


def test_a_missing_side_is_the_identity(generator):
    G, Q_L, Q_R = normal(generator, 4, 6), orthogonal(generator, 4, 4), orthogonal(generator, 6, 6)
    eye = (torch.eye(4, dtype=torch.float64), torch.eye(6, dtype=torch.float64))
    assert torch.equal(rotate(G, None, None), G)
    assert torch.equal(rotate(G, Q_L, None), rotate(G, Q_L, eye[1]))
    assert torch.equal(rotate(G, None, Q_R), rotate(G, eye[0], Q_R))


@pytest.mark.parametrize("maximize", [False, True])
def test_without_bases_it_is_adamw(generator, maximize):
    W = normal(generator, 5, 3)
    state = (W, torch.zeros_like(W), torch.zeros_like(W))
    weight = torch.nn.Parameter(W.clone())
    settings = {"lr": 0.02, "eps": 1e-8, "weight_decay": 0.1, "maximize": maximize}
    adamw = torch.optim.AdamW([weight], betas=(0.9, 0.95), **settings)
    for step in range(1, 51):
        weight.grad = normal(generator, 5, 3)
        adamw.step()
        state = adam(
            state[0], weight.grad, *state[1:], None, None, beta1=0.9, beta2=0.95, step=step, **settings
        )
        assert (state[0] - weight).abs().max() <= 1e-12


def test_rotated_adam_is_adamw_on_rotated_coordinates(generator):
    W, Q_L, Q_R = normal(generator, 5, 3), orthogonal(generator, 5, 5), orthogonal(generator, 3, 3)
    state = (W, torch.zeros_like(W), torch.zeros_like(W))
    weight = torch.nn.Parameter(rotate(W, Q_L, Q_R))
    adamw = torch.optim.AdamW([weight], lr=0.02, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(1, 51):
        grad = normal(generator, 5, 3)
        weight.grad = rotate(grad, Q_L, Q_R)
        adamw.step()
        scalars = {"lr": 0.02, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "step": step}
        state = adam(state[0], grad, *state[1:], Q_L, Q_R, **scalars)
    assert (rotate(state[0], Q_L, Q_R) - weight).abs().max() <= 1e-12


def test_signed_permutations_carry_both_moments_exactly(generator):
    m, v = normal(generator, 4, 6), normal(generator, 4, 6).square()
    P_L, P_R = signed_permutation(generator, 4), signed_permutation(generator, 6)
    moved_m, moved_v = rebase_moments(m, v, P_L, P_R)
    rows, columns = P_L.abs().argmax(1), P_R.abs().argmax(1)
    signs = P_L.sum(1)[:, None] * P_R.sum(1)[None, :]
    assert torch.equal(moved_m, signs * m[rows][:, columns])
    assert torch.equal(moved_v, v[rows][:, columns])


def test_first_moment_is_the_one_of_the_new_basis(generator):
    G, old, new = normal(generator, 5, 5), orthogonal(generator, 5, 5), orthogonal(generator, 5, 5)
    moved, _ = rebase_moments(rotate(G, old, None), torch.zeros(5, 5), new.T @ old, None)
    torch.testing.assert_close(moved, rotate(G, new, None))


def test_second_moment_stays_positive_and_keeps_its_sum(generator):
    v = normal(generator, 6, 4).square()
    P_L, P_R = orthogonal(generator, 6, 6), orthogonal(generator, 4, 4)
    _, moved = rebase_moments(torch.zeros(6, 4), v, P_L, P_R)
    assert (moved >= 0).all()
    torch.testing.assert_close(moved.sum(), v.sum())


def test_second_moment_is_the_variance_of_independent_coordinates(generator):
    deviations = normal(generator, 3, 3).abs()
    P = orthogonal(generator, 3, 3)
    independent = torch.diag(deviations.reshape(-1) ** 2)
    K = torch.kron(P, torch.eye(3, dtype=torch.float64))
    _, moved = rebase_moments(torch.zeros(3, 3), deviations**2, P, None)
    torch.testing.assert_close(moved.reshape(-1), torch.diag(K @ independent @ K.T))


def test_the_article_example():
    example = {
        name: torch.tensor(value, dtype=torch.float64)
        for name, value in golden()["kpop_article_2x2"].items()
        if isinstance(value, list)
    }
    G, Q_R, Q_C = example["G"], example["Q_R"], example["Q_C"]
    for factor, Q in (("C", Q_C), ("R", Q_R)):
        torch.testing.assert_close(rotate(example[factor], Q, Q), torch.diag(example[f"eigvals_{factor}"]))
    torch.testing.assert_close(rotate(G, Q_R, Q_C), example["G_rotated"])
    zeros = torch.zeros(2, 2)
    scalars = {"lr": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "step": 1}
    new = adam(zeros, G, zeros, zeros, Q_R, Q_C, **scalars)
    torch.testing.assert_close(new.param, example["first_adam_step_lr_0p1"])
