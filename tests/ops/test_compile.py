"""A training step's worth of operators in one inductor graph."""

import pytest
import torch

import kpop_kernels
from tests.matrices import covariance, normal, orthogonal
from tests.ops.launch import assert_same_bits


def step(param, grad, exp_avg, exp_avg_sq, L, Q_old, Q_new, lr, t):
    kpop_kernels.gram_ema_(L, grad, beta=0.9, alpha=0.1, side="left")
    kpop_kernels.rebase_moments_(exp_avg, exp_avg_sq, Q_new.mT @ Q_old, None)
    kpop_kernels.kron_adam_(param, grad * 2, exp_avg, exp_avg_sq, Q_new, None, lr=lr, step=t)
    return kpop_kernels.kron_rotate(param, Q_new, None) + 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inductor_matches_eager(generator):
    shape, f = (9, 7), torch.float32
    param, grad, exp_avg = (normal(generator, *shape, dtype=f) for _ in range(3))
    written = [param, exp_avg, exp_avg.square(), covariance(generator, 9, 9, dtype=f)]
    read = [grad, orthogonal(generator, 9, 9, dtype=f), orthogonal(generator, 9, 9, dtype=f)]
    results = []
    torch.compiler.reset()
    for function in (step, torch.compile(step, fullgraph=True)):
        W, m, v, L = (tensor.clone() for tensor in written)
        outputs = [function(W, read[0], m, v, L, *read[1:], 0.1 / t, t) for t in range(1, 5)]
        results.append([*outputs, W, m, v, L])
    assert_same_bits(*results)
