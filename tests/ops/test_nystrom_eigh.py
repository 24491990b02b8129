"""Eigenpairs from sketches: exact where they can be, thin in memory, and calm where factorizations fail."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import kpop_kernels
from kpop_kernels import backends, nystrom_eigh
from python_ref.nystrom import nystrom


def normal(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def low_rank(m, n, rank, **options):
    return normal(m, rank, **options) @ normal(rank, n, seed=1, **options)


def pairs(G, U=None, eigvals=None, *, rank=20, oversampling=4, beta=0.0, side="left", step=1):
    return nystrom_eigh(
        G,
        U,
        eigvals,
        rank=rank,
        oversampling=oversampling,
        power_iterations=1,
        beta=beta,
        side=side,
        generator=torch.Generator().manual_seed(step),
    )


def restored(found):
    return found.U @ torch.diag_embed(found.eigvals) @ found.U.mT


def relative(found, expected):
    return (torch.linalg.norm(found - expected) / torch.linalg.norm(expected)).item()


def gram(G, side):
    return G @ G.mT if side == "left" else G.mT @ G


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 9), (9, 1), (30, 20)])
def test_follows_the_oracle(side, warm, m, n):
    G, rank = normal(m, n), min(4, m, n)
    length = m if side == "left" else n
    old = torch.linalg.qr(normal(length, rank, seed=2)).Q if warm else None
    eigvals = torch.linspace(3, 1, rank, dtype=torch.float64) if warm else None
    A = 0.1 * gram(G, side) + (0.9 * old * eigvals @ old.mT if warm else 0)
    columns = min(5, length - rank) + (0 if warm else rank)
    Psi = torch.randn(length, columns, generator=torch.Generator().manual_seed(1)).double()
    with backends.trace() as counter:
        found = pairs(G, old, eigvals, rank=rank, oversampling=5, beta=0.9, side=side)
    assert counter == {("nystrom_eigh", "composite"): 1}
    U, expected = nystrom(A, Psi, old, rank, power_iterations=1)
    torch.testing.assert_close(found.U, U, rtol=0, atol=1e-7)
    torch.testing.assert_close(found.eigvals, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_factor_of_low_rank_is_restored_exactly_cold_and_warm(side):
    G = low_rank(60, 50, rank=20)
    cold = pairs(G, side=side)
    assert relative(restored(cold), gram(G, side)) < 1e-12
    warm = pairs(3 * G, cold.U, cold.eigvals, beta=0.9, side=side, step=2)
    assert relative(restored(warm), 0.9 * gram(G, side) + 0.1 * gram(3 * G, side)) < 1e-12
    assert not cold.failed.any()


def test_the_lower_triangular_factor_would_be_noticed(monkeypatch):
    solve = torch.linalg.solve_triangular

    def with_the_lower_factor(factor, Y, *, upper, left):
        return solve(factor.mT, Y, upper=False, left=left)

    monkeypatch.setattr(torch.linalg, "solve_triangular", with_the_lower_factor)
    G = low_rank(60, 50, rank=20)
    assert relative(restored(pairs(G)), gram(G, "left")) > 1e-2


def test_warm_starts_converge_to_the_leading_eigenvectors():
    """Twelve refreshes with the same gradient, whose singular values halve, with a power iteration each."""
    left, right = torch.linalg.qr(normal(40, 40)).Q, torch.linalg.qr(normal(60, 40, seed=1)).Q
    G = left * 0.5 ** torch.arange(40) @ right.mT
    found = pairs(G, rank=5)
    for step in range(2, 14):
        found = pairs(G, found.U, found.eigvals, rank=5, beta=0.5, step=step)
    exact = torch.linalg.eigh(G @ G.T).eigenvectors[:, -5:]
    cosines = torch.linalg.svdvals(exact.T @ found.U)
    assert cosines.min() > 1 - 1e-6


def test_signs_agree_with_the_old_vectors():
    G = normal(30, 40) * torch.logspace(0, -2, 40, dtype=torch.float64)
    old = pairs(G, rank=4)
    flipped = old.U * torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    new = pairs(G, flipped, old.eigvals, rank=4, beta=0.9)
    assert ((new.U * flipped).sum(0) > 0).all()
    assert ((new.U * old.U).sum(0) > 0).tolist() == [True, False, True, False]


def test_a_stack_is_its_matrices_and_an_idle_one_keeps_its_basis():
    G = normal(2, 30, 20, dtype=torch.float32)
    old = pairs(G, rank=4)
    G[1] = 0
    new = pairs(G, old.U, old.eigvals, rank=4, beta=0.5, step=2)
    torch.testing.assert_close(new.U[1], old.U[1], rtol=0, atol=0)
    torch.testing.assert_close(new.eigvals[1], 0.5 * old.eigvals[1], rtol=0, atol=0)
    assert not torch.equal(new.U[0], old.U[0])


def test_a_zero_gradient_without_a_basis_gives_an_orthonormal_one():
    found = pairs(torch.zeros(30, 20), rank=4)
    torch.testing.assert_close(found.U.mT @ found.U, torch.eye(4), rtol=0, atol=1e-6)
    assert not found.eigvals.any()
    assert not found.failed


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-10, 1e18, 1e37], ids=str)
def test_the_basis_does_not_depend_on_the_size_of_the_gradient(scale):
    G = normal(30, 20, dtype=torch.float32)
    expected = pairs(G, rank=4).U
    power_of_two = 2.0 ** torch.tensor(scale).log2().round().item()
    torch.testing.assert_close(pairs(G * power_of_two, rank=4).U, expected, rtol=0, atol=1e-5)
    assert pairs(G * power_of_two, rank=4).eigvals.isfinite().all()


@pytest.mark.parametrize("failures", [3, 100], ids=["larger shifts", "eigenvalues instead"])
def test_a_failing_cholesky_factorization_is_helped_by_larger_shifts_and_then_by_eigenvalues(
    failures, monkeypatch
):
    calls = []
    cholesky = torch.linalg.cholesky_ex

    def failing(B):
        calls.append(B)
        L, info = cholesky(B)
        return L, torch.ones_like(info) if len(calls) <= failures else info

    monkeypatch.setattr(torch.linalg, "cholesky_ex", failing)
    G = low_rank(60, 50, rank=20)
    found = pairs(G)
    assert len(calls) == min(failures + 1, 7)
    assert relative(restored(found), gram(G, "left")) < 1e-8
    assert not found.failed


def test_a_decomposition_that_cannot_be_had_keeps_the_basis_and_says_so(monkeypatch):
    G = normal(30, 20)
    old = pairs(G, rank=4)

    def refuse(X, full_matrices):
        raise torch.linalg.LinAlgError("no convergence")

    monkeypatch.setattr(torch.linalg, "svd", refuse)
    new = pairs(G, old.U, old.eigvals, rank=4, beta=0.5)
    assert new.failed
    assert torch.equal(new.U, old.U)
    assert torch.equal(new.eigvals, 0.5 * old.eigvals)


def test_a_failure_in_float32_is_tried_again_in_float64(monkeypatch):
    svd, dtypes = torch.linalg.svd, []

    def refuse_float32(X, full_matrices):
        dtypes.append(X.dtype)
        if X.dtype == torch.float32:
            raise torch.linalg.LinAlgError("no convergence")
        return svd(X, full_matrices=full_matrices)

    G = normal(30, 20, dtype=torch.float32)
    expected = pairs(G, rank=4)
    monkeypatch.setattr(torch.linalg, "svd", refuse_float32)
    found = pairs(G, rank=4)
    assert dtypes == [torch.float32, torch.float64]
    assert found.U.dtype == torch.float32
    torch.testing.assert_close(found.U, expected.U, rtol=0, atol=1e-5)


class NewElements(TorchDispatchMode):
    """Records the most elements of an output that is not a view of an input."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        known = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if torch.is_tensor(t)}
        for t in tree_leaves(out):
            if torch.is_tensor(t) and t.untyped_storage().data_ptr() not in known:
                self.most = max(self.most, t.numel())
        return out


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_no_temporary_is_larger_than_a_sketch_of_both_sides(side, warm):
    m, n, rank, oversampling = 700, 500, 5, 3
    G = normal(m, n, dtype=torch.float32)
    old = pairs(G, rank=rank, oversampling=oversampling, side=side)
    length = m if side == "left" else n
    Psi = normal(length, oversampling + (0 if warm else rank), dtype=torch.float32)
    before = (old.U, old.eigvals) if warm else (None, None)
    options = {"rank": rank, "power_iterations": 1, "beta": 0.9, "side": side}
    # The backend's function: dispatch modes do not see into an operator.
    with NewElements() as elements:
        backends.get("composite").nystrom_eigh(G, *before, Psi, **options)
    assert length * (rank + oversampling) <= elements.most <= (m + n) * (rank + oversampling)


def test_equal_generators_give_equal_bits():
    G = normal(30, 20, dtype=torch.float32)
    first, second, other = (pairs(G, rank=4, step=step) for step in (1, 1, 2))
    assert all(map(torch.equal, first, second))
    assert not torch.equal(first.U, other.U)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_gradients_are_computed_in_float32(dtype):
    G = normal(30, 20).to(dtype)
    narrow, wide = pairs(G, rank=4), pairs(G.float(), rank=4)
    assert all(map(torch.equal, narrow, wide))


def test_compiles_and_passes_opcheck():
    G, Psi = normal(2, 9, 7), normal(2, 9, 6)
    scalars = {"rank": 4, "power_iterations": 1, "beta": 0.5, "side": "left"}
    torch.library.opcheck(torch.ops.kpop.nystrom_eigh.default, (G, None, None, Psi), scalars)
    old = pairs(G, rank=4)
    torch.library.opcheck(torch.ops.kpop.nystrom_eigh.default, (G, *old[:2], Psi[..., :2]), scalars)


G = torch.ones(3, 2)
REJECTED = {
    "rank": ({"rank": 4}, ValueError, "rank is 4, it must be an integer from 0 to 3"),
    "U alone": ({"U": torch.ones(3, 1)}, ValueError, "one of U and eigvals is None, both or neither must be"),
    "U shape": (
        {"U": torch.ones(3, 2), "eigvals": torch.ones(1)},
        ValueError,
        r"U has shape \(3, 2\), it must be \(3, 1\) for this G, side and rank",
    ),
    "dtype": (
        {"U": torch.ones(3, 1).double(), "eigvals": torch.ones(1)},
        TypeError,
        "U is torch.float64, it must be torch.float32",
    ),
    "vector": ({"G": torch.ones(3)}, ValueError, r"G has shape \(3,\)"),
    "beta": ({"beta": 1.0}, ValueError, "beta is 1.0"),
    "oversampling": ({"oversampling": -1}, ValueError, "oversampling is -1"),
    "power_iterations": ({"power_iterations": -1}, ValueError, "power_iterations is -1"),
    "side": ({"side": "top"}, ValueError, "side is 'top', it must be one of 'left', 'right'"),
}


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED.values(), ids=REJECTED)
def test_rejects(change, exception, message):
    accepted = {"G": G, "U": None, "eigvals": None, "rank": 1, "generator": torch.Generator()}
    with pytest.raises(exception, match="nystrom_eigh: " + message):
        kpop_kernels.nystrom_eigh(**(accepted | change))
