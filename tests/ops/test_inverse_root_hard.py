"""Inverse roots of hard matrices: extreme norms, singular, indefinite, poisoned; and equivariance."""

import pytest
import torch

import kpop_kernels as kpop
from python_ref.inverse_root import inverse_root as true_inverse_root
from tests.ops.matrices import relative_error, root_options, spd


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("exponent", [-96, -4, 16, 96])
def test_powers_of_16_scale_exactly(backend, p, exponent):
    A = spd(12, 1e3)
    expected, _ = backend.inverse_root(A, p, **root_options())
    root, _ = backend.inverse_root(A * 2.0**exponent, p, **root_options())
    assert torch.equal(root, expected * 2.0 ** (-exponent / p))


@pytest.mark.parametrize("c", [1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e30])
@pytest.mark.parametrize("method", ["newton_schulz", "eigh"])
def test_tiny_and_huge_norms(backend, c, method):
    A = spd(31, 1e3) * c
    for p in (1, 2, 4):
        root, bound = backend.inverse_root(A, p, **root_options(method=method))
        assert relative_error(root, true_inverse_root(A, p)) <= 4e-4
        assert (bound.double() > torch.linalg.eigvalsh(A.double()).amax(-1)).all()


def test_equivariance(backend):
    A = spd(40, 1e3)
    root, _ = backend.inverse_root(A, 2, **root_options())
    order = torch.randperm(40, generator=torch.Generator().manual_seed(5))
    permuted, _ = backend.inverse_root(A[:, order][:, :, order], 2, **root_options())
    assert relative_error(permuted, root[:, order][:, :, order]) <= 2e-5
    Q = torch.linalg.qr(torch.randn(40, 40, generator=torch.Generator().manual_seed(6))).Q
    rotated, _ = backend.inverse_root(Q @ A @ Q.mT, 2, **root_options())
    assert relative_error(rotated, Q @ root @ Q.mT) <= 2e-4


@pytest.mark.parametrize("method", ["newton_schulz", "eigh"])
@pytest.mark.parametrize("n", [1, 3, 17, 64])
def test_zero_in_gives_zero_or_the_damping(backend, n, method):
    A = torch.zeros(2, n, n)
    A[1] = torch.eye(n)
    root, bound = backend.inverse_root(A, 2, **root_options(method=method))
    assert not root[0].any() and bound[0] == 0
    torch.testing.assert_close(root[1], torch.eye(n), rtol=0, atol=2e-4)
    for p in (1, 2, 4):
        damped, _ = backend.inverse_root(A, p, **root_options(method=method, damping=0.25))
        torch.testing.assert_close(damped[0], 0.25 ** (-1 / p) * torch.eye(n), rtol=4e-4, atol=4e-4)


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("method", ["newton_schulz", "eigh"])
@pytest.mark.parametrize("n", [5, 33])
def test_poison_stays_in_its_matrix(backend, poison, method, n):
    A = spd(n, 1e2, batch=3).clone()
    A[1, n - 1, 0] = poison
    expected, _ = backend.inverse_root(A[[0, 2]], 2, **root_options(method=method))
    root, _ = backend.inverse_root(A, 2, **root_options(method=method))
    assert root[1].isnan().all()
    assert relative_error(root[[0, 2]], expected) <= 1e-5
    root, info = kpop.inverse_root(A, method=method, check=True)
    assert info.finite.tolist() == [True, False, True]


def test_repeated_eigenvalues(backend):
    for n in (2, 16, 50):
        for value in (1.0, 3.0):
            root, _ = backend.inverse_root(value * torch.eye(n).expand(2, n, n), 2, **root_options())
            assert relative_error(root, value**-0.5 * torch.eye(n).expand(2, n, n)) <= 2e-4


def test_rank_deficient(backend):
    generator = torch.Generator().manual_seed(2)
    Q = torch.linalg.qr(torch.randn(128, 16, generator=generator)).Q
    A = (Q @ Q.mT)[None]
    root, bound = backend.inverse_root(A, 2, **root_options())
    assert root.isfinite().all()
    # Null directions saturate near the product of the linear coefficients over the root of the bound.
    null = torch.linalg.eigvalsh(root[0].double())[-1] * bound.double().sqrt()
    assert 1000 < null < 3500
    assert relative_error(root @ Q, Q[None]) < 2e-2
    damped, _ = backend.inverse_root(A, 2, **root_options(relative_damping=1e-4))
    assert relative_error(damped, true_inverse_root(A, 2, relative_damping=1e-4)) <= 2e-3


def test_slightly_negative_eigenvalues(backend):
    generator = torch.Generator().manual_seed(2)
    Q = torch.linalg.qr(torch.randn(32, 32, dtype=torch.float64, generator=generator)).Q
    eigvals = torch.ones(32, dtype=torch.float64)
    eigvals[0] = -1e-7
    A = ((Q * eigvals) @ Q.mT).float()
    root, _ = backend.inverse_root(A, 2, **root_options())
    assert root.isfinite().all()
    eigvals[0] = -1e-3
    A = ((Q * eigvals) @ Q.mT).float()
    damped, _ = backend.inverse_root(A, 2, **root_options(damping=2e-3))
    assert relative_error(damped, true_inverse_root(A, 2, damping=2e-3)) <= 2e-4


@pytest.mark.parametrize("n", [1, 6, 20])
@pytest.mark.parametrize("method", ["newton_schulz", "eigh", "auto"])
def test_negative_definite_matrices_have_no_root(backend, n, method):
    A = torch.stack([torch.eye(n), -torch.eye(n)])
    root, _ = backend.inverse_root(A, 2, **root_options(method=method))
    assert relative_error(root[:1], A[:1]) <= 2e-4
    assert root[1].isnan().all()


def test_check_reports_a_negative_eigenvalue():
    A = torch.stack([torch.diag(torch.tensor([1.0, 0.5, -0.1])), torch.eye(3)])
    for backend_dtype in (torch.float32, torch.float64):
        _, info = kpop.inverse_root(A.to(backend_dtype), check=True)
        assert info.finite.tolist() == [False, True]


def test_uses_the_symmetric_part(backend):
    A = spd(20, 1e2)
    skew = torch.randn(20, 20, generator=torch.Generator().manual_seed(3))
    skew = skew - skew.mT
    root, _ = backend.inverse_root(A + skew, 2, **root_options())
    assert relative_error(root, true_inverse_root(A, 2)) <= 2e-4
