"""Clean against its oracle, what it must be invariant to, and what training cannot see."""

import math

import pytest
import torch
from torch import nn

from kpop_kernels import block_project, optim
from kpop_kernels.optim import Clean, _low_rank
from kpop_kernels.optim._low_rank import sketch_generator
from python_ref.optim.clean import Clean as Reference
from tests.optim.trajectories import SHAPES, run

OPTIONS = {
    "default": {},
    "refresh each step": {"precondition_frequency": 1},
    "decay and scale": {"weight_decay": 0.1, "alpha": 0.5},
    "sums": {"pool": "sum"},
    "exact transport": {"transport": "exact", "precondition_frequency": 3},
    "residual limited": {"limiter_scope": "residual"},
    "all limited": {"limiter_scope": "total"},
    "nothing limited": {"limiter_scope": "off"},
    "clipped": {"clip": True, "precondition_frequency": 3},
    "other betas": {"betas": (0.9, 0.99), "shampoo_beta": 0.8, "precondition_frequency": 4},
}


def sizes(shape):
    """Rank and oversampling for which r + p is below the rank of a gradient.

    Otherwise the bases of the first step are exact eigenvectors of the gradient that they rotate; S is diagonal
    then, and Adam blows the rounding errors beside the diagonal up to their size over eps.
    """
    m, n = dimensions(shape)
    return (3, 2) if min(m, n) > 5 else (2, 0)


def dimensions(shape):
    return shape[-2:] if len(shape) <= 3 else (shape[0], math.prod(shape[1:]))


def sketches(shape, seed=0):
    """For each matrix of a parameter, the random columns that the optimizer draws: left first, then right."""
    e = shape[0] if len(shape) == 3 else 1
    m, n = dimensions(shape)

    def sketch(index):
        drawn = {}

        def columns(step, side, count):
            if side == "left":
                drawn["generator"] = sketch_generator(seed, step=step)
            size = m if side == "left" else n
            return torch.randn(e, size, count, generator=drawn["generator"]).double()[index]

        return columns

    return map(sketch, range(e))


def reference(shape, cls=Reference, **options):
    """What makes the oracle of each matrix in turn."""
    betas = options.get("betas", (0.95, 0.95))
    each = sketches(shape)

    def make(W):
        return cls(
            W,
            lr=1e-2,
            sketch=next(each),
            rank=options.get("rank", sizes(shape)[0]),
            oversampling=options.get("oversampling", sizes(shape)[1]),
            beta1=betas[0],
            beta2=betas[1],
            shampoo_beta=options.get("shampoo_beta", betas[1]),
            weight_decay=options.get("weight_decay", 0.0),
            frequency=options.get("precondition_frequency", 10),
            pool_sum=options.get("pool") == "sum",
            alpha=options.get("alpha", 1.0),
            limiter_scope=options.get("limiter_scope", "C"),
            exact_transport=options.get("transport") == "exact",
            bound=1.0 if options.get("clip") else math.inf,
        )

    return make


def steps_with_the_oracle(shape, dtype=torch.float64, steps=24, **options):
    def make(params):
        rank, oversampling = sizes(shape)
        return Clean(params, **{"lr": 1e-2, "rank": rank, "oversampling": oversampling} | options)

    return run(shape, make, reference(shape, **options), steps=steps, dtype=dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_follows_the_oracle_in_float64(shape, options):
    for found, expected, *_ in steps_with_the_oracle(shape, **options):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (2, 3, 5)], ids=str)
def test_complete_bases_follow_the_oracle_to_the_rounding_that_adam_blows_up(shape):
    """Rounding errors of 1e-16 over eps = 1e-8, times the rate and a few steps."""
    for found, expected, *_ in steps_with_the_oracle(shape, rank=8, oversampling=8):
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-9)


@pytest.mark.parametrize("shape", [(8, 8), (40, 17)], ids=str)
def test_follows_the_oracle_in_float32(shape):
    """24 steps of lr 1e-2 move entries by up to 0.24; float32 stays within 1e-4, 1.6e-5 were measured."""
    for found, expected, *_ in steps_with_the_oracle(shape, dtype=torch.float32):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("disturbed", ["U_L", "U_R"])
def test_other_signs_of_a_basis_change_nothing(disturbed):
    """The same basis with other signs, with its first moments, is the same method."""
    runs = []
    for disturb in (False, True):
        runs.append([])
        steps = steps_with_the_oracle((9, 12), precondition_frequency=4)
        for step, (found, _, optimizer, _) in enumerate(steps):
            runs[-1].append(found.clone())
            if disturb and step == 5:
                (state,) = optimizer.state.values()
                signs = torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64)
                state[disturbed] *= signs
                rows = disturbed == "U_L"
                state["exp_avg"] *= signs[:, None] if rows else signs
                state["exp_avg_B" if rows else "exp_avg_A"] *= signs[:, None] if rows else signs
    torch.testing.assert_close(runs[0], runs[1], rtol=0, atol=1e-10)


def test_a_block_of_unit_entries_comes_from_means_and_a_damped_one_from_sums():
    """At the first step N is ±1 in main; the squares of A's columns, B's rows and C have mean 1, or sum 1."""
    G = torch.randn(30, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for pool in ("mean", "sum"):
        parameter = nn.Parameter(torch.zeros_like(G))
        parameter.grad = G
        optimizer = Clean([parameter], lr=1.0, rank=4, oversampling=2, pool=pool)
        optimizer.step()
        (state,) = optimizer.state.values()
        main, A, B, C = block_project(-parameter.detach(), state["U_L"], state["U_R"])
        torch.testing.assert_close(main.abs(), torch.ones_like(main), rtol=1e-5, atol=0)
        measure = torch.mean if pool == "mean" else torch.sum
        for squares in (measure(A**2, -2), measure(B**2, -1), measure(C**2)):
            torch.testing.assert_close(squares, torch.ones_like(squares), rtol=1e-5, atol=0)


def test_the_norm_of_the_limited_part_grows_by_gamma_a_step():
    gamma, norms = 1.01, []
    for scale in (1.0, 1.0, 100.0, 100.0):
        X = torch.full((1, 2, 3), scale)
        norm = torch.tensor([[[norms[-1] if norms else 0.0]]])
        norms.append(_low_rank._limited(X, norm, gamma).norm().item())
        assert norm.item() == pytest.approx(norms[-1])
    assert norms == pytest.approx([6**0.5, 6**0.5, gamma * 6**0.5, gamma**2 * 6**0.5])


def test_a_gradient_of_low_rank_moves_nothing_but_what_it_spans():
    """Rounding errors in parts that are zero must not be blown up to unit size."""
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(30, 2, generator=generator), torch.randn(2, 20, generator=generator)
    parameter = nn.Parameter(torch.zeros(30, 20))
    parameter.grad = left @ right
    Clean([parameter], lr=1.0, rank=2).step()
    W = parameter.detach()
    outside = W - W @ torch.linalg.pinv(right) @ right
    assert outside.norm() < 1e-3 * W.norm()


@pytest.mark.parametrize("shape", [(96, 256), (256, 96), (320, 512)])
def test_what_complete_bases_leave_in_float32_is_rounding_error_and_counts_as_zero(shape):
    rank = 96
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, rank, generator=generator) for size in shape)
    parameter = nn.Parameter(torch.zeros(shape))
    optimizer = Clean([parameter], rank=rank)
    parameter.grad = left @ right.mT
    optimizer.step()
    state = optimizer.state[parameter]
    assert all(state[f"exp_avg_{part}"].count_nonzero() == 0 for part in "AB")
    assert state["exp_avg_sq_C"].count_nonzero() == 0
    assert (parameter * parameter.grad).sum() < 0


def test_a_side_that_is_too_long_leaves_the_whole_matrix_to_adam():
    params = [nn.Parameter(torch.zeros(40, 6)), nn.Parameter(torch.zeros(20, 6))]
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer = Clean(params, max_precond_dim=30)
    optimizer.step()
    assert set(optimizer.state[params[0]]) == {"step", "exp_avg", "exp_avg_sq"}
    assert "U_L" in optimizer.state[params[1]]
    header, *lines = optimizer.explain().splitlines()
    column = header.index("treated")
    assert [line[column:].split("  ")[0] for line in lines] == ["Adam", "both sides"]


def test_state_has_the_published_number_of_floats():
    """2(m + n)r + 2r² + 4r + 1, and the limiter's norm."""
    model = nn.Linear(1024, 2736, bias=False, device="meta")
    optimizer = Clean(model.parameters(), rank=256)
    optimizer.init_state()
    assert optim.state_bytes(optimizer) == 4 * (2_057_217 + 1) + 4
