"""refresh_eigenbasis: the oracle's bases, signs and order, and what happens where there is none."""

import pytest
import torch

import kpop_kernels
from kpop_kernels import backends
from kpop_kernels.backends import _eigenbasis as composite
from kpop_kernels.backends.cpu import eigenbasis as cpu
from kpop_kernels.ops.eigenbasis import Eigenbasis
from python_ref.eigenbasis import refresh
from tests.matrices import covariance, normal, orthogonal, signed_permutation
from tests.ops.matrices import BACKENDS, running

SIZES = (1, 2, 5, 33, 128)


def spread(generator, n, *, dtype=torch.float64, decades=3.0):
    """Return a matrix with eigenvalues from 1 down to 10^-decades, well apart, and its eigenvectors."""
    Q = orthogonal(generator, n, n)
    S = (Q * torch.logspace(0, -decades, n, dtype=torch.float64)) @ Q.mT
    return ((S + S.mT) / 2).to(dtype), Q


def near(generator, Q, angle=1e-2):
    """Return a basis that is turned a little."""
    A = normal(generator, *Q.shape) * angle / Q.shape[-1] ** 0.5
    return torch.linalg.matrix_exp(A - A.mT) @ Q


def off_diagonal(S, Q):
    T = Q.mT @ S @ Q
    return (T - torch.diag_embed(T.diagonal(dim1=-2, dim2=-1))).norm() / S.norm()


@pytest.mark.parametrize("method", ["eigh", "qr", "auto"])
@pytest.mark.parametrize("n", SIZES)
def test_follows_the_oracle_in_float64(generator, n, method):
    S, exact = spread(generator, n)
    old = near(generator, exact)
    found = kpop_kernels.refresh_eigenbasis(S, old, method=method)
    Q, eigvals, P = refresh(S, old, qr=method == "qr" or (method == "auto" and n > 1))
    torch.testing.assert_close(found.Q, Q, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.eigvals, eigvals, rtol=0, atol=1e-13)
    torch.testing.assert_close(found.P, P, rtol=0, atol=1e-10)
    assert found.failed.shape == () and not found.failed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", ["eigh", "qr"])
@pytest.mark.parametrize("n", [1, 33, 257])
def test_accuracy_in_lower_precision(generator, n, method, dtype):
    S, exact = spread(generator, n)
    S, old = S.to(dtype), near(generator, exact).float()
    found = kpop_kernels.refresh_eigenbasis(S, old, method=method)
    Q = found.Q.double()
    assert found.Q.dtype == found.eigvals.dtype == found.P.dtype == torch.float32
    assert (Q.mT @ Q - torch.eye(n)).norm() < 3e-5
    quotients = (Q * (S.double() @ Q)).sum(0)
    assert (found.eigvals - quotients).abs().max() < 2e-6
    assert found.eigvals.diff().max() <= 0 if n > 1 else True
    assert ((found.Q * old).sum(0) >= 0).all()
    torch.testing.assert_close(found.P, found.Q.mT @ old)
    if method == "eigh":
        assert off_diagonal(S.double(), Q) < 2e-6


@pytest.mark.parametrize("name", BACKENDS[1:])
@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 33, 96, 257])
def test_steps_in_cpp_follow_float64(generator, n, sort, name, monkeypatch):
    monkeypatch.setitem(cpu._LONGEST, "baseline", 257)
    S, exact = spread(generator, n)
    old = near(generator, exact).roll(n // 3, -1)
    with running(name), backends.trace() as served:
        found = kpop_kernels.refresh_eigenbasis(S.float(), old.float(), method="qr", sort=sort)
    assert served == {("refresh_eigenbasis", "cpu"): 1}
    true = kpop_kernels.refresh_eigenbasis(S, old, method="qr", sort=sort)
    assert off_diagonal(torch.eye(n).double(), found.Q.double()) < 5e-6
    assert (found.eigvals - true.eigvals).abs().max() < 1e-6
    # Columns of small eigenvalues move by rounding errors over the distance to the next eigenvalue.
    plain = composite_step(S.float(), old.float(), sort)
    for actual, expected, rounded in ((found.Q, true.Q, plain.Q), (found.P, true.P, plain.P)):
        assert (actual - expected).norm() <= 2 * (rounded - expected).norm() + 1e-6
    assert not found.failed


@pytest.mark.parametrize("threads", [2, 3])
def test_steps_in_cpp_have_the_same_bits_on_any_number_of_threads(generator, threads):
    exact = [spread(generator, 100) for _ in range(5)]
    S = torch.stack([S for S, _ in exact]).float()
    old = torch.stack([near(generator, Q) for _, Q in exact]).float()
    before = torch.get_num_threads()
    for count in (1, 5):
        torch.set_num_threads(1)
        alone = kpop_kernels.refresh_eigenbasis(S[:count], old[:count], method="qr")
        torch.set_num_threads(threads)
        shared = kpop_kernels.refresh_eigenbasis(S[:count], old[:count], method="qr")
        torch.set_num_threads(before)
        for one, other in zip(alone, shared, strict=True):
            assert torch.equal(one, other)


def composite_step(S, old, sort):
    out = (
        torch.empty_like(S),
        torch.empty(S.shape[-1]),
        torch.empty_like(S),
        torch.empty((), dtype=torch.bool),
    )
    composite.refresh_eigenbasis(S, old, method="qr", sort=sort, out=out)
    return Eigenbasis(*out)


def test_auto_takes_the_step_only_where_the_basis_is_near(generator):
    S, exact = spread(generator, 33)
    bases = torch.stack([near(generator, exact), orthogonal(generator, 33, 33)])
    S = S.expand(2, -1, -1)
    auto, qr, eigh = (kpop_kernels.refresh_eigenbasis(S, bases, method=m) for m in ("auto", "qr", "eigh"))
    assert torch.equal(auto.Q[0], qr.Q[0]) and not torch.equal(auto.Q[0], eigh.Q[0])
    assert torch.equal(auto.Q[1], eigh.Q[1])
    alone = kpop_kernels.refresh_eigenbasis(S[1], bases[1])
    torch.testing.assert_close(alone.Q, auto.Q[1], rtol=0, atol=1e-10)


def test_steps_of_qr_converge_to_the_eigenvectors(generator):
    S, _ = spread(generator, 12, decades=6)
    Q = orthogonal(generator, 12, 12)
    for _ in range(60):
        Q = kpop_kernels.refresh_eigenbasis(S, Q, method="qr").Q
    assert off_diagonal(S, Q) < 1e-12


def test_a_basis_in_another_order_gives_the_same_eigenvectors(generator):
    S, exact = spread(generator, 9)
    moved = exact @ signed_permutation(generator, 9)
    for method in ("eigh", "qr"):
        found = kpop_kernels.refresh_eigenbasis(S, moved, method=method)
        torch.testing.assert_close(found.Q.abs(), exact.abs(), rtol=0, atol=1e-10)
        torch.testing.assert_close(found.P.abs().sum(0), torch.ones(9).double(), rtol=0, atol=1e-10)


def test_without_sorting_eigenvalues_rise_or_columns_stay(generator):
    S, exact = spread(generator, 9)
    moved = exact.flip(1).roll(2, 1)
    found = kpop_kernels.refresh_eigenbasis(S, moved, method="qr", sort=False)
    torch.testing.assert_close(found.Q, moved, rtol=0, atol=1e-10)
    assert kpop_kernels.refresh_eigenbasis(S, moved, method="eigh", sort=False).eigvals.diff().min() > 0


def test_without_a_basis_signs_are_those_of_lapack(generator):
    S = covariance(generator, 6, 6)
    found = kpop_kernels.refresh_eigenbasis(S, None, sort=False)
    torch.testing.assert_close(found.Q, torch.linalg.eigh(S).eigenvectors, rtol=0, atol=1e-10)
    assert torch.equal(found.P, found.Q.mT)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("method", ["auto", "qr", "eigh"])
def test_a_bad_matrix_keeps_its_basis_and_the_others_their_bits(generator, method, bad):
    S = torch.stack([spread(generator, 9, dtype=torch.float32)[0] for _ in range(4)])
    old = orthogonal(generator, 4, 9, 9, dtype=torch.float32)
    clean = kpop_kernels.refresh_eigenbasis(S, old, method=method)
    S[1, 2, 3], S[2] = bad, 0
    found = kpop_kernels.refresh_eigenbasis(S, old, method=method)
    assert found.failed.tolist() == [False, True, False, False]
    for i in (1, 2):
        assert torch.equal(found.Q[i], old[i]) and torch.equal(found.P[i], torch.eye(9))
    assert found.eigvals[1].isnan().all() and not found.eigvals[2].any()
    for name in ("Q", "eigvals", "P"):
        assert torch.equal(getattr(found, name)[[0, 3]], getattr(clean, name)[[0, 3]])


HARD = {
    "low rank": lambda g: (lambda X: X @ X.mT)(normal(g, 200, 7, dtype=torch.float32)),
    "identity": lambda g: torch.eye(50),
    "repeated rows": lambda g: (lambda X: X @ X.mT)(normal(g, 5, 30, dtype=torch.float32).repeat(8, 1)),
    "tiny": lambda g: covariance(g, 20, 20, dtype=torch.float32) * 1e-30,
    "huge": lambda g: covariance(g, 20, 20, dtype=torch.float32) * 1e30,
    "subnormal": lambda g: covariance(g, 20, 20, dtype=torch.float32) * 1e-40,
}


@pytest.mark.parametrize("make", HARD.values(), ids=HARD)
@pytest.mark.parametrize("method", ["qr", "eigh"])
def test_hard_factors_have_orthonormal_bases(generator, make, method):
    S = make(generator)
    n = S.shape[-1]
    found = kpop_kernels.refresh_eigenbasis(
        S, orthogonal(generator, n, n, dtype=torch.float32), method=method
    )
    assert not found.failed
    assert (found.Q.mT @ found.Q - torch.eye(n)).norm() < 3e-5
    assert found.eigvals.isfinite().all()


def refusing(monkeypatch, accepts):
    """Make eigh fail for what is not accepted, and return the (dtype, device, batch) of every attempt."""
    attempts, eigh = [], torch.linalg.eigh

    def choosy(S):
        attempts.append((S.dtype, S.ndim))
        if not accepts(S):
            raise torch.linalg.LinAlgError("no convergence")
        return eigh(S)

    monkeypatch.setattr(torch.linalg, "eigh", choosy)
    return attempts


def test_a_failure_in_float32_is_tried_again_in_float64(generator, monkeypatch):
    S, exact = spread(generator, 9, dtype=torch.float32)
    attempts = refusing(monkeypatch, lambda S: S.dtype == torch.float64)
    found = kpop_kernels.refresh_eigenbasis(S, exact.float(), method="eigh")
    assert attempts == [(torch.float32, 3), (torch.float64, 3)]
    assert not found.failed and found.Q.dtype == torch.float32
    assert off_diagonal(S, found.Q) < 1e-6


def test_one_matrix_that_cannot_be_decomposed_fails_alone(generator, monkeypatch):
    S = torch.stack([spread(generator, 9)[0] for _ in range(3)])
    old = orthogonal(generator, 3, 9, 9)
    clean = kpop_kernels.refresh_eigenbasis(S, old, method="eigh")
    mean = S[1].diagonal().mean()
    refused = S[1, 0, 1] / 2.0 ** mean.log2().floor()
    attempts = refusing(monkeypatch, lambda A: not (A[..., 0, 1] - refused).abs().min() < 1e-12)
    found = kpop_kernels.refresh_eigenbasis(S, old, method="eigh")
    assert [ndim for _, ndim in attempts] == [3, 2, 2, 2]
    assert found.failed.tolist() == [False, True, False]
    assert torch.equal(found.Q[1], old[1]) and torch.equal(found.P[1], torch.eye(9))
    torch.testing.assert_close(found.Q[[0, 2]], clean.Q[[0, 2]], rtol=0, atol=1e-10)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_products_are_in_full_precision_whatever_torch_allows(generator, precision, monkeypatch):
    S, exact = spread(generator, 33)
    seen, qr = [], torch.linalg.qr

    def watching(A):
        seen.append((torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision))
        return qr(A)

    monkeypatch.setattr(torch.linalg, "qr", watching)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        with backends.trace() as served:
            kpop_kernels.refresh_eigenbasis(S, exact, method="qr")
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == [("ieee", "ieee")]
    assert served == {("refresh_eigenbasis", "composite"): 1}


@pytest.mark.parametrize("shape", [(0, 0), (3, 0, 0), (0, 4, 4), (2, 3, 5, 5)], ids=str)
def test_shapes(generator, shape):
    S = covariance(generator, *shape)
    found = kpop_kernels.refresh_eigenbasis(S, orthogonal(generator, *shape))
    assert found.Q.shape == found.P.shape == S.shape
    assert found.eigvals.shape == S.shape[:-1] and found.failed.shape == S.shape[:-2]
    assert not found.failed.any()


EYE = torch.eye(3)
REJECTED = {
    "not square": (dict(S=torch.ones(2, 3), Q=None), ValueError, r"S has shape \(2, 3\), it must be"),
    "Q shape": (dict(S=EYE, Q=torch.eye(2)), ValueError, r"Q has shape \(2, 2\), it must be \(3, 3\) like S"),
    "Q dtype": (dict(S=EYE, Q=EYE.double()), TypeError, "Q is torch.float64, it must be torch.float32"),
    "integers": (dict(S=EYE.int(), Q=None), TypeError, "S is torch.int32"),
    "method": (dict(S=EYE, Q=EYE, method="svd"), ValueError, "method is 'svd', it must be one of 'auto'"),
    "qr alone": (dict(S=EYE, Q=None, method="qr"), ValueError, "Q is None, it must be given for method 'qr'"),
}


@pytest.mark.parametrize(("arguments", "exception", "message"), REJECTED.values(), ids=REJECTED)
def test_rejects(arguments, exception, message):
    with pytest.raises(exception, match="refresh_eigenbasis: " + message):
        kpop_kernels.refresh_eigenbasis(**arguments)


def test_composite_serves_it_and_it_compiles(generator):
    S, Q = covariance(generator, 2, 5, 5), orthogonal(generator, 2, 5, 5)
    with backends.trace() as counter:
        eager = kpop_kernels.refresh_eigenbasis(S, Q)
    assert counter == {("refresh_eigenbasis", "composite"): 1}
    compiled = torch.compile(kpop_kernels.refresh_eigenbasis, fullgraph=True, backend="aot_eager")(S, Q)
    assert all(map(torch.equal, eager, compiled))
    torch.library.opcheck(torch.ops.kpop.refresh_eigenbasis.default, (S, Q), {"method": "qr"})
