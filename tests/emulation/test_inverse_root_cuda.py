"""Inverse roots of the CUDA backend, emulated: errors within those stated, bits where bits are promised."""

import pytest
import torch

from kpop_kernels import backends
from kpop_kernels.backends import cuda as package
from python_ref.inverse_root import inverse_root as true_inverse_root
from python_ref.inverse_root import spectrum_bound
from tests.emulation import cuda_emulator
from tests.emulation.cuda_backend import emulated, operator, run
from tests.emulation.tools import require_tool
from tests.guards import Guarded
from tests.ops.matrices import SPECTRA, relative_error, root_options, spd, truth
from tests.ops.test_inverse_root import allowed

ORDERS = cuda_emulator.ORDERS
SIZES = (1, 2, 3, 8, 16, 17, 31, 33, 64)
FLOAT32, FLOAT16 = (f"kpop::inverse_root<kpop::Float{bits}Products, " + "{}>" for bits in (32, 16))


@pytest.fixture(autouse=True)
def compiler(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())


def roots_of(A, p=2, **changed):
    """Take the roots of a list between guard bands; return them and the bounds."""
    items = [Guarded(item) for item in A]
    roots = [Guarded(torch.full_like(item, torch.nan)) for item in A]
    bounds = [Guarded(torch.full(item.shape[:-2], torch.nan)) for item in A]
    lists = [[guarded.tensor for guarded in group] for group in (items, roots, bounds)]
    operator("inverse_root_foreach")(*lists, p, **root_options(**changed))
    for item, *outputs in zip(items, roots, bounds, strict=True):
        item.assert_unchanged("A")
        for output in outputs:
            output.assert_intact("out")
    return lists[1], lists[2]


def root_of(A, p=2, **changed):
    root, bound = run("inverse_root", A, p=p, **root_options(**changed))
    return root, bound


@pytest.mark.parametrize("order", ORDERS)
def test_a_list_of_mixed_orders_is_one_launch(order):
    A = [spd(n, 1e5, "spike" if n % 2 else "log", batch=1 + n % 2) for n in SIZES]
    with emulated(order, only="inverse_root.cu") as cuda:
        roots, bounds = roots_of(A)
        assert cuda.launches() == [FLOAT32.format(64)]
    for item, root, bound in zip(A, roots, bounds, strict=True):
        assert relative_error(root, true_inverse_root(item, 2)) <= allowed(1e5)
        assert torch.equal(root, root.mT)
        torch.testing.assert_close(bound.double(), spectrum_bound(item), rtol=1e-5, atol=0)


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_every_spectrum(spectrum):
    A = [spd(n, kappa, spectrum, batch=1) for n in (31, 64, 127) for kappa in (1e4, 1e5)]
    with emulated(only="inverse_root.cu"):
        roots, _ = roots_of(A)
    for item, kappa, root in zip(A, (1e4, 1e5) * 3, roots, strict=True):
        assert relative_error(root, true_inverse_root(item, 2)) <= allowed(kappa, spectrum)
        assert torch.equal(root, root.mT)


def test_equivariance():
    A = spd(40, 1e3)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(5))
    Q = torch.linalg.qr(torch.randn(40, 40, generator=torch.Generator().manual_seed(6))).Q
    with emulated(only="inverse_root.cu"):
        (root, permuted, rotated), _ = roots_of([A, A[:, order][:, :, order], Q @ A @ Q.mT])
    assert relative_error(permuted, root[:, order][:, :, order]) <= 2e-5
    assert relative_error(rotated, Q @ root @ Q.mT) <= 2e-4


def test_a_root_has_the_same_bits_alone_in_a_list_and_in_any_order():
    A = [spd(n, 1e4) for n in (5, 31, 40, 16)]
    with emulated("shuffled", seed=3, only="inverse_root.cu") as cuda:
        listed, bounds = roots_of(A)
        cuda.launches()
    with emulated(only="inverse_root.cu") as cuda:
        for item, root, bound in zip(A, listed, bounds, strict=True):
            alone, alone_bound = root_of(item[1])
            assert torch.equal(alone, root[1]) and torch.equal(alone_bound, bound[1])
        assert cuda.launches() == [FLOAT32.format(size) for size in (32, 32, 64, 32)]


@pytest.mark.parametrize("n", [8, 31])
@pytest.mark.parametrize("p", [1, 4])
def test_other_roots(n, p):
    with emulated(only="inverse_root.cu"):
        root, _ = root_of(spd(n, 1e4), p)
        narrow, _ = root_of(spd(n, 1e3), p, precision="fp16")
    assert relative_error(root, truth(n, 1e4, "log", p)) <= allowed(1e4) * (2 if p == 1 else 1)
    assert relative_error(narrow, truth(n, 1e3, "log", p)) <= 8e-3 * 2
    for X in (root, narrow):
        assert torch.equal(X, X.mT)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_largest_order(precision):
    with emulated("reversed", only="inverse_root.cu") as cuda:
        root, _ = root_of(spd(127, 1e4, batch=1), precision=precision)
        assert cuda.launches() == [(FLOAT32 if precision == "fp32" else FLOAT16).format(128)]
    error = relative_error(root, true_inverse_root(spd(127, 1e4, batch=1), 2))
    assert error <= (2e-4 if precision == "fp32" else 3e-2)
    assert torch.equal(root, root.mT)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_orders_up_to_8_are_computed_in_float64(precision, spectrum):
    """Float32 reaches 2.4e-4 for order 3 at a condition number of 1e4; rounding of A itself leaves κ u."""
    kappas = (1e1, 1e4, 1e5)
    A = [spd(n, kappa, spectrum) for n in range(1, 9) for kappa in kappas]
    with emulated("shuffled", only="inverse_root.cu") as cuda:
        for p in (1, 2, 4):
            roots, bounds = roots_of(A, p, precision=precision)
            for item, kappa, root, bound in zip(A, kappas * 8, roots, bounds, strict=True):
                tolerance = 2e-4 * (2 if p == 1 else 1) * (4 if spectrum == "two" and kappa > 1e4 else 1)
                assert relative_error(root, true_inverse_root(item, p)) <= tolerance
                assert torch.equal(root, root.mT)
                torch.testing.assert_close(bound.double(), spectrum_bound(item), rtol=1e-6, atol=0)
        kernel = FLOAT32 if precision == "fp32" else FLOAT16
        assert cuda.launches() == [kernel.format(32)] * 3


def test_a_tiny_root_has_the_same_bits_beside_large_ones():
    A = [spd(n, 1e4) for n in (5, 40, 8, 100, 1)]
    with emulated("reversed", only="inverse_root.cu"):
        listed, _ = roots_of(A)
        for item, root in zip(A[::2], listed[::2], strict=True):
            assert torch.equal(root_of(item[1])[0], root[1])
            assert torch.equal(root_of(item[1] * 2.0**64)[0] * 2.0**32, root[1])


@pytest.mark.parametrize(("kappa", "tolerance"), [(1e3, 8e-3), (1e5, 3e-2)])
@pytest.mark.parametrize("spectrum", ["log", "two"])
def test_float16_products(kappa, tolerance, spectrum):
    """Rounded ones: the error is far above that of float32. Those of "two" are 4 times as large."""
    A = [spd(n, kappa, spectrum) for n in (9, 33, 64)]
    with emulated(only="inverse_root.cu") as cuda:
        roots, _ = roots_of(A, precision="fp16")
        assert cuda.launches() == [FLOAT16.format(64)]
    for item, root in zip(A, roots, strict=True):
        error = relative_error(root, true_inverse_root(item, 2))
        assert error <= tolerance * (4 if spectrum == "two" else 1)
        assert error > 5e-4
        assert torch.equal(root, root.mT)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_matrices_and_strides(dtype):
    A = spd(19, 1e2).to(dtype)
    with emulated(only="inverse_root.cu"):
        root, _ = root_of(A)
        spread = torch.zeros(2, 40, 30, dtype=dtype)[:, :38:2, :19].copy_(A)
        assert torch.equal(root_of(spread)[0], root)
        assert torch.equal(root_of(A.mT.contiguous().mT)[0], root)
    assert root.dtype == dtype
    assert relative_error(root, true_inverse_root(A, 2)) <= (4e-3 if dtype == torch.bfloat16 else 6e-4)


@pytest.mark.parametrize("n", [5, 18])
@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_zero_poison_and_scale(p, precision, n):
    """Zero gives zero, poison stays in its matrix, powers of 16 scale exactly over any range."""
    A = spd(n, 1e2, batch=1)
    poisoned = A.clone()
    poisoned[0, n - 1, 3] = torch.nan
    scaled = [A * 2.0**exponent for exponent in (-96, 16, 96)]
    infinite = A.clone().fill_(torch.inf)
    with emulated(only="inverse_root.cu"):
        roots, bounds = roots_of(
            [A, poisoned, torch.zeros_like(A), infinite, *scaled, A], p, precision=precision
        )
    assert roots[0].isfinite().all() and torch.equal(roots[0], roots[-1])
    assert roots[1].isnan().all() and roots[3].isnan().all() and not bounds[1].isfinite()
    assert not roots[2].any() and bounds[2] == 0
    for root, exponent in zip(roots[4:7], (-96, 16, 96), strict=True):
        assert torch.equal(root, roots[0] * 2.0 ** (-exponent / p))


def test_damping_and_the_symmetric_part():
    A = spd(20, 1e4)
    skew = torch.randn(20, 20, generator=torch.Generator().manual_seed(3))
    with emulated(only="inverse_root.cu"):
        for given in ({"damping": 0.25}, {"relative_damping": 1e-3}):
            root, bound = root_of(A + (skew - skew.mT), **given)
            expected = true_inverse_root(A, 2, **given)
            assert relative_error(root, expected) <= 2e-4
            assert (bound > torch.linalg.eigvalsh(expected).amin(-1) ** -2).all()
        root, _ = root_of(torch.zeros(1, 3, 3), 4, damping=0.25)
    torch.testing.assert_close(root[0], 0.25**-0.25 * torch.eye(3), rtol=4e-4, atol=4e-4)


def test_singular_matrices_keep_their_range():
    """Rounding leaks from null directions into the others unless Y and Z are exactly symmetric."""
    Q = torch.linalg.qr(torch.randn(48, 16, generator=torch.Generator().manual_seed(2))).Q
    with emulated(only="inverse_root.cu"):
        root, bound = root_of((Q @ Q.mT)[None])
    assert relative_error(root @ Q, Q[None]) < 2e-2
    null = torch.linalg.eigvalsh(root[0].double())[-1] * bound.double().sqrt()
    assert 1000 < null < 3500


def test_empty_batches_and_eigenvalues():
    with emulated(only="inverse_root.cu") as cuda:
        for shape in ((0, 0), (3, 0, 0), (0, 4, 4)):
            root, bound = root_of(torch.empty(shape))
            assert root.shape == shape and not bound.any()
        root, _ = root_of(spd(20, 1e2), method="eigh")
        assert cuda.launches() == []
    assert relative_error(root, truth(20, 1e2, "log", 2)) <= 1e-4
    assert torch.equal(root, root.mT)


def test_lists_longer_than_a_launch_holds():
    A = [torch.full((1, 1), float(i + 1)) for i in range(258)]
    with emulated(only="inverse_root.cu") as cuda:
        roots, _ = roots_of(A)
        assert cuda.launches() == [FLOAT32.format(32)] * 2
    torch.testing.assert_close(torch.cat(roots), torch.cat(A).rsqrt(), rtol=4e-4, atol=0)


def test_what_is_refused(monkeypatch):
    with emulated(only="inverse_root.cu"), pytest.raises(ValueError, match="has 65 steps, on this device at"):
        run("inverse_root", spd(3, 1e2), p=2, **(root_options() | {"schedule": [1.5, -0.5] * 65}))
    monkeypatch.setattr(package, "absent_because", lambda: None)
    monkeypatch.setattr(package, "DEVICES", ("cpu",))
    backend = backends.Backend("cuda")
    assert backend.serves("inverse_root", torch.zeros(128, 128))
    assert not backend.serves("inverse_root_foreach", torch.zeros(128, 128), torch.zeros(129, 129))
    message = r"inverse_root: backend 'cuda' takes matrices with sides up to 128, not \(129, 129\)"
    with pytest.raises(ValueError, match=message):
        backend.inverse_root(torch.zeros(129, 129), 2, **root_options())
