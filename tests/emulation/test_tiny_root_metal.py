"""Roots of tiny matrices on Metal's emulation: pairs of floats where other backends have float64."""

import pytest
import torch

from kpop_kernels import backends
from kpop_kernels.backends.metal import inverse_root as launcher
from python_ref.inverse_root import inverse_root as true_inverse_root
from python_ref.inverse_root import spectrum_bound
from tests.emulation.metal_backend import emulate, replace_once, require_clang, run_guarded, serve_metal
from tests.emulation.metal_emulator import ORDERS
from tests.ops.matrices import SPECTRA, UNIT, relative_error, root_options, spd

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
ITERATION = "static inline void iterate("


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


@pytest.mark.parametrize("n", range(1, 9))
@pytest.mark.parametrize("p", [1, 2, 4])
def test_every_matrix_has_the_root_that_float64_gives(monkeypatch, n, p):
    """In float32 one matrix of thirty misses the stated error at order 3 and a condition number of 1e4."""
    compiler = serve_metal(monkeypatch)
    A = torch.cat([spd(n, kappa, spectrum, batch=8) for kappa in (1e4, 1e5) for spectrum in SPECTRA])
    root, bound = backends.get("metal").inverse_root(A, p, **root_options())
    assert compiler.launches == ["tiny_root"]
    expected, _ = backends.get("composite").inverse_root(A, p, **root_options())
    assert relative_error(root, expected) <= 4 * UNIT
    assert relative_error(root, true_inverse_root(A, p)) <= 1e-4 * (2 if p == 1 else 1)
    assert torch.equal(root, root.mT)
    torch.testing.assert_close(bound.double(), spectrum_bound(A), rtol=1e-6, atol=0)


@pytest.mark.parametrize("mode", ["exact", "flush", "contract", "fast"])
def test_no_math_mode_takes_the_second_float_for_zero(monkeypatch, mode):
    A = spd(5, 1e5, "power", batch=4)
    skew = torch.randn(5, 5, generator=torch.Generator().manual_seed(3))
    options = root_options(damping=1e-6, relative_damping=1e-6)
    results = []
    for order in ORDERS:
        compiler = serve_metal(monkeypatch, mode=mode, order=order)
        results.append(run_guarded("inverse_root", {"A": A + (skew - skew.mT)}, p=4, **options))
        assert compiler.launches == ["tiny_root"]
    assert all(torch.equal(a, b) for result in results for a, b in zip(result, results[0], strict=True))
    S = (A + (skew - skew.mT)).double()
    expected, _ = backends.get("composite").inverse_root((S + S.mT) / 2, 4, **options)
    assert relative_error(results[0][0], expected) <= 4 * UNIT


def roots(monkeypatch, edit):
    """Yield roots of a kernel whose source is edited, in every order of threads."""
    for order in ORDERS:
        emulate(monkeypatch, order=order, edit=edit)
        A = spd(7, 1e5, "power", batch=2)
        root, bound = torch.empty_like(A), torch.empty(2)
        launcher.inverse_root(A, 4, out=(root, bound), **root_options())
        yield root


def are_right(results):
    expected, _ = backends.get("composite").inverse_root(spd(7, 1e5, "power", batch=2), 4, **root_options())
    results = list(results)
    same = all(torch.equal(root, results[0]) for root in results)
    return same and relative_error(results[0], expected) <= 4 * UNIT


def dropped(index):
    def edit(source):
        head, iteration = source.split(ITERATION)
        parts = iteration.split(BARRIER)
        assert len(parts) > 4
        return head + ITERATION + BARRIER.join(parts[: index + 1]) + BARRIER.join(parts[index + 1 :])

    return edit


def test_the_kernel_as_it_is(monkeypatch):
    assert are_right(roots(monkeypatch, str))


@pytest.mark.parametrize("index", [1, 2, 3])
def test_a_dropped_barrier_is_caught(monkeypatch, index):
    assert not are_right(roots(monkeypatch, dropped(index)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sum.y + (a.y + b.y)", "sum.y"),
        ("fma(a.x, b.y, fma(a.y, b.x, error))", "fma(a.x, b.y, error)"),
        ("fma(a.x, b.y, fma(a.y, b.x, error))", "fma(a.x, b.y, a.y * b.x)"),
    ],
)
def test_a_lost_half_is_caught(monkeypatch, old, new):
    assert not are_right(roots(monkeypatch, lambda source: replace_once(source, old, new)))
