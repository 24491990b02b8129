"""The covariance oracle against its definition."""

import torch

from python_ref.gram import gram_ema
from tests.matrices import covariance, normal


def test_is_a_sum_of_outer_products(generator):
    S, X = covariance(generator, 3, 3), normal(generator, 3, 5)
    expected = 0.5 * S + sum(0.25 * torch.outer(X[:, k], X[:, k]) for k in range(5))
    torch.testing.assert_close(gram_ema(S, X, beta=0.5, alpha=0.25, side="left"), expected)


def test_right_is_left_of_the_transpose(generator):
    S, X = covariance(generator, 4, 3, 3), normal(generator, 4, 5, 3)
    right = gram_ema(S, X, beta=0.9, alpha=0.1, side="right")
    assert torch.equal(right, gram_ema(S, X.mT, beta=0.9, alpha=0.1, side="left"))


def test_is_exact_in_float64_for_float32_integers(generator):
    X = torch.randint(-9, 10, (6, 7), generator=generator).float()
    S = torch.zeros(6, 6)
    new = gram_ema(S, X, beta=1.0, alpha=1.0, side="left")
    assert new.dtype == torch.float64
    assert torch.equal(new, torch.tensor([[float(a @ b) for b in X] for a in X], dtype=torch.float64))


def test_no_columns_only_decay(generator):
    S = covariance(generator, 3, 3)
    assert torch.equal(gram_ema(S, torch.empty(3, 0), beta=0.5, alpha=1.0, side="left"), 0.5 * S)
