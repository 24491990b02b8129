"""Defects reported of other packages' roots, polar factors and symmetric products, each named by what it shows."""

import os
import subprocess
import sys

import pytest
import torch

import kpop_kernels as kpop
from kpop_kernels import coefficients
from kpop_kernels.backends.cpu import newton_schulz as polar_on_the_cpu
from python_ref import newton_schulz as polar_oracle
from tests.ops.matrices import relative_error, root_options, running, spd
from tests.ops.test_newton_schulz import polar_options

BYTES_OF_LARGE = 3 * 2**34


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("method", ["standard", "gram"])
def test_zero_gradient_rows_do_not_divide_zero_by_zero(backend, method):
    X = torch.zeros(3, 8, 40)
    X[1, 5] = 1
    X[2] = torch.outer(normal(8), normal(40, seed=1))
    result = backend.newton_schulz(X, **polar_options(method=method))
    assert result.isfinite().all() and not result[0].any() and result[1].count_nonzero() == 40
    zero, _ = backend.inverse_root(X @ X.mT, 4, **root_options(damping=1e-3))
    assert zero.isfinite().all()


@pytest.mark.parametrize("shape", [(4, 50), (50, 4), (1, 9), (13, 13), (7, 1)])
def test_sides_need_not_be_multiples_of_eight(backend, shape):
    X = normal(2, *shape)
    result = backend.newton_schulz(X, **polar_options("muon"))
    expected = polar_oracle.map_singular_values(X, coefficients.polar_schedule("muon", 5))
    assert relative_error(result, expected) <= 5e-4
    gram = backend.syrk(X, C=None, alpha=1.0, beta=0.0, side="left")
    assert relative_error(gram, X.double() @ X.double().mT) <= 1e-6


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0


@pytest.mark.skipif(memory_bytes() < BYTES_OF_LARGE, reason="48 GB of memory are needed")
def test_offsets_beyond_2_to_the_31(backend):
    n, batch = 64, 2**19 + 1
    X = torch.zeros(batch, n, n)
    X[-1] = normal(n, n)
    gram = backend.syrk(X, C=None, alpha=1.0, beta=0.0, side="left")
    assert relative_error(gram[-1:], X[-1:].double() @ X[-1:].double().mT) <= 1e-6
    assert not gram[0].any()


def test_strided_views_are_read_in_their_own_order(backend):
    A = spd(24, 1e2)
    spread = torch.full((2, 48, 72), torch.nan)
    spread[:, ::2, ::3] = A
    view = spread[:, ::2, ::3]
    root, _ = backend.inverse_root(view, 2, **root_options())
    same, _ = backend.inverse_root(A, 2, **root_options())
    assert relative_error(root, same) <= 1e-6
    polar, same = (backend.newton_schulz(X, **polar_options()) for X in (view, A))
    assert relative_error(polar, same) <= 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_normalizing_does_not_overwrite_the_input(backend, dtype):
    X = normal(2, 12, 12, dtype=dtype)
    before = X.clone()
    result = backend.newton_schulz(X, **polar_options())
    assert torch.equal(X, before) and result.data_ptr() != X.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_of_narrow_inputs_do_not_overflow(backend, dtype):
    X = normal(30, 200) * (2e4 if dtype == torch.float16 else 1e30)
    X = X.clamp(-torch.finfo(dtype).max / 2, torch.finfo(dtype).max / 2).to(dtype)
    result = backend.newton_schulz(X, **polar_options()).double()
    assert result.isfinite().all()
    sigma = torch.linalg.svdvals(result)
    assert sigma[-1] > 0.8 and sigma[0] < 1.2


@pytest.mark.parametrize("rank", [1, 5])
@pytest.mark.parametrize("method", ["auto", "newton_schulz", "eigh"])
def test_factors_of_low_rank_do_not_stop_the_solver(backend, rank, method):
    X = normal(200, rank)
    A = X @ X.mT
    for options in (root_options(method=method), root_options(method=method, relative_damping=1e-6)):
        root, _ = backend.inverse_root(A, 4, **options)
        assert root.isfinite().all()


def test_twice_the_same_bits(backend):
    A, X = spd(70, 1e3), normal(2, 70, 150)
    roots = [backend.inverse_root(A, 4, **root_options())[0] for _ in range(2)]
    polars = [backend.newton_schulz(X, **polar_options()) for _ in range(2)]
    grams = [backend.syrk(X, C=A, alpha=1.0, beta=0.5, side="left") for _ in range(2)]
    assert all(torch.equal(*pair) for pair in (roots, polars, grams))


def test_a_product_with_its_own_transpose_is_right(backend):
    """Where BLAS recognizes one buffer in both factors it takes another path; the oracle is in float64."""
    X = normal(65, 65)
    for product in (
        backend.symm_mm(X, X.mT, C=None, alpha=1.0, beta=0.0),
        backend.syrk(X, C=None, alpha=1.0, beta=0.0, side="left"),
    ):
        assert relative_error(product[None], (X.double() @ X.double().mT)[None]) <= 1e-6


def test_products_too_small_to_gain_by_halves_are_left_to_blas(monkeypatch):
    with running("cpu-baseline") as cpu:
        asked = []
        syrk = polar_on_the_cpu.syrk
        monkeypatch.setattr(polar_on_the_cpu, "syrk", lambda *a, **k: asked.append(1) or syrk(*a, **k))
        cpu.newton_schulz(normal(2, 16, 40), **polar_options())
        assert not asked
        cpu.newton_schulz(normal(2, 300, 300), **polar_options())
        assert asked


def on_two_devices():
    """Calls of which one tensor is on another device than the rest."""
    A, X = torch.eye(4), torch.ones(4, 6)
    far = lambda tensor: tensor.to("meta")
    return {
        "second factor": lambda: kpop.symm_mm(A, far(A)),
        "addend": lambda: kpop.syrk(X, C=far(A), beta=1.0),
        "output of a product": lambda: kpop.symm_mm(A, A, out=far(A)),
        "output of a root": lambda: kpop.inverse_root(A, out=far(A)),
        "item of a list of roots": lambda: kpop.inverse_root_foreach([A, far(A)]),
        "output of a list of roots": lambda: kpop.inverse_root_foreach([A, A], out=[A.clone(), far(A)]),
        "output of a polar factor": lambda: kpop.newton_schulz(X, out=far(X)),
        "item of a list of polar factors": lambda: kpop.newton_schulz_foreach([X, far(X)]),
    }


@pytest.mark.parametrize("case", on_two_devices())
def test_tensors_on_two_devices_are_refused_in_a_sentence(case):
    with pytest.raises(ValueError, match=r"^\w+: .* on (cpu|meta), it must be .*on (cpu|meta)"):
        on_two_devices()[case]()


WITHOUT_TRITON = """
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *place: None if name.partition(".")[0] == "triton" else find(name, *place)
import torch, kpop_kernels
from kpop_kernels import backends
assert "triton" not in sys.modules
A = 4 * torch.eye(5)
assert torch.allclose(kpop_kernels.inverse_root(A), torch.eye(5) / 2, atol=1e-3)
assert torch.allclose(kpop_kernels.newton_schulz(A, steps=8), torch.eye(5), atol=1e-3)
assert torch.equal(kpop_kernels.syrk(A), 16 * torch.eye(5))
reasons = backends.available()
assert reasons["composite"] is None, reasons
"""


def test_without_triton_the_package_works_and_nothing_fails_on_import():
    subprocess.run([sys.executable, "-c", WITHOUT_TRITON], check=True, timeout=300)


def test_an_all_zero_matrix_in_a_batch_ends_no_process(backend):
    A = torch.stack([torch.zeros(16, 16), spd(16, 10.0)[0]])
    for p in (1, 2, 4):
        for method in ("newton_schulz", "eigh"):
            root, bound = backend.inverse_root(A, p, **root_options(method=method))
            assert not root[0].any() and bound[0] == 0 and root[1].isfinite().all()
    assert not backend.newton_schulz(A, **polar_options())[0].any()
