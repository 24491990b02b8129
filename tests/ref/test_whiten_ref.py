"""The oracle of whitening and of KL-Shampoo's factors: mathematics, and a worked step."""

import pytest
import torch

from python_ref.whiten import kl_gram_ema, whiten, whiten_update
from tests.matrices import covariance, normal


def power(S, exponent):
    w, Q = torch.linalg.eigh(S)
    return Q * w**exponent @ Q.mT


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 5), (4, 7)])
def test_whitening_is_the_kronecker_product(generator, m, n):
    G, P_L, P_R = normal(generator, m, n), normal(generator, m, m), normal(generator, n, n)
    expected = torch.kron(P_L, P_R.T.contiguous()) @ G.reshape(-1)
    torch.testing.assert_close(whiten(G, P_L, P_R).reshape(-1), expected)
    assert torch.equal(whiten(G, None, None), G)


def test_roots_of_both_grams_make_a_matrix_orthogonal(generator):
    G = normal(generator, 4, 4)
    U = whiten(G, *(power(S, -1 / 4) for S in (G @ G.T, G.T @ G)))
    torch.testing.assert_close(U @ U.T, torch.eye(4, dtype=torch.float64))


def test_the_update_decays_and_descends(generator):
    W, G = normal(generator, 3, 4), normal(generator, 3, 4)
    moved = whiten_update(W, G, None, None, lr=0.1, weight_decay=0.5, scale=2.0)
    torch.testing.assert_close(moved, 0.95 * W - 0.2 * G)


def test_both_factors_are_identities_for_gradients_of_their_covariance(generator):
    """The stationary point: E[G S_b⁻¹ Gᵀ]/n = S_a for G = S_a^½ Z S_b^½ with independent unit Z."""
    S_a, S_b = covariance(generator, 3, 30), covariance(generator, 4, 40)
    G = power(S_a, 1 / 2) @ normal(generator, 50_000, 3, 4) @ power(S_b, 1 / 2)
    P_a, P_b = power(S_a, -1 / 2), power(S_b, -1 / 2)
    new_a, new_b = kl_gram_ema(S_a, S_b, G, P_a, P_b, beta=0.5, eps=0.0)
    torch.testing.assert_close(new_a.mean(0), S_a, rtol=0, atol=0.02)
    torch.testing.assert_close(new_b.mean(0), S_b, rtol=0, atol=0.02)


def test_a_worked_step():
    """G of one row: S_a is a number, S_b gets GᵀG scaled by P_a²."""
    G = torch.tensor([[3.0, 4.0]])
    S_a, S_b = torch.tensor([[2.0]]), torch.eye(2)
    new_a, new_b = kl_gram_ema(S_a, S_b, G, torch.tensor([[0.5]]), None, beta=0.5, eps=0.25)
    torch.testing.assert_close(new_a, torch.tensor([[1 + 0.25 * 25 + 0.25]]).double())
    torch.testing.assert_close(new_b, torch.tensor([[1.875, 1.5], [1.5, 2.75]]).double())
