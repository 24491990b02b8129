"""Inverse roots on Metal's emulation: the tests of every backend, and those of the kernel itself."""

import pytest
import torch

from kpop_kernels import backends
from kpop_kernels.backends.metal import inverse_root as launcher
from python_ref.inverse_root import inverse_root as true_inverse_root
from python_ref.inverse_root import spectrum_bound
from tests.emulation.metal_backend import (
    emulate,
    replace_once,
    require_clang,
    run_guarded,
    serve_metal,
)
from tests.emulation.metal_emulator import ORDERS
from tests.ops.matrices import SPECTRA, relative_error, root_options, spd, truth
from tests.ops.test_inverse_root_contract import (  # noqa: F401 - run here on the fixture below
    test_batch_items_do_not_meet,
    test_empty,
    test_layouts,
    test_leaves_inputs_unchanged,
    test_writes_nothing_else,
)
from tests.ops.test_inverse_root_hard import (  # noqa: F401 - run here on the fixture below
    test_equivariance,
    test_negative_definite_matrices_have_no_root,
    test_poison_stays_in_its_matrix,
    test_powers_of_16_scale_exactly,
    test_rank_deficient,
    test_repeated_eigenvalues,
    test_slightly_negative_eigenvalues,
    test_tiny_and_huge_norms,
    test_uses_the_symmetric_part,
    test_zero_in_gives_zero_or_the_damping,
)

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


@pytest.fixture
def backend(monkeypatch):
    serve_metal(monkeypatch)
    return backends.get("metal")


def allowed(kappa, spectrum):
    return 2e-4 * max(1, kappa / 1e4) * (4 if spectrum == "two" else 1)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 31, 64, 70, 127])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_matches_reference(backend, n, spectrum):
    for kappa in (1e4, 1e5) if n < 70 else (1e5,):
        A = spd(n, kappa, spectrum)
        with backends.trace() as served:
            root, bound = backend.inverse_root(A, 2, **root_options())
        assert served == {("inverse_root", "metal"): 1}
        assert relative_error(root, truth(n, kappa, spectrum, 2)) <= allowed(kappa, spectrum)
        assert torch.equal(root, root.mT)
        torch.testing.assert_close(bound.double(), spectrum_bound(A), rtol=1e-5, atol=0)


@pytest.mark.parametrize("p", [1, 4])
@pytest.mark.parametrize("n", [9, 64, 65])
def test_other_roots_match_reference(backend, n, p):
    for method in ("newton_schulz", "eigh"):
        root, _ = backend.inverse_root(spd(n, 1e4), p, **root_options(method=method))
        assert relative_error(root, truth(n, 1e4, "log", p)) <= allowed(1e4, "log") * (2 if p == 1 else 1)
        assert torch.equal(root, root.mT)


@pytest.mark.parametrize("mode", ["flush", "contract", "fast"])
def test_every_order_of_threads_gives_the_same_bits(monkeypatch, mode):
    A = spd(37, 1e4, batch=3)
    results = []
    for order in ORDERS:
        compiler = serve_metal(monkeypatch, mode=mode, order=order)
        results.append(run_guarded("inverse_root", {"A": A}, p=4, **root_options(damping=0.0)))
        assert compiler.launches == ["inverse_root"]
    assert all(torch.equal(a, b) for result in results for a, b in zip(result, results[0], strict=True))
    root = results[0][0]
    assert torch.equal(root, root.mT)
    expected = backends.get("composite").inverse_root(A, 4, **root_options())[0]
    assert relative_error(root, expected) <= 2e-4


def test_lists_of_mixed_sizes_are_one_launch_a_size(monkeypatch):
    compiler = serve_metal(monkeypatch)
    sizes = [(3, 3), (2, 20, 20), (64, 64), (3, 3), (0, 0)]
    A = [
        spd(s[-1], 1e2, batch=torch.Size(s[:-2]).numel()).view(s) if s[-1] else torch.empty(s) for s in sizes
    ]
    out, bounds = [torch.empty_like(item) for item in A], [torch.empty(item.shape[:-2]) for item in A]
    backends.get("metal").inverse_root_foreach(A, out, bounds, 2, **root_options())
    assert compiler.launches == ["tiny_root", "inverse_root", "inverse_root"]
    for item, root, bound in zip(A, out, bounds, strict=True):
        single, single_bound = backends.get("metal").inverse_root(item, 2, **root_options())
        assert torch.equal(root, single) and torch.equal(bound, single_bound)


def test_many_matrices_are_several_launches(monkeypatch):
    compiler = serve_metal(monkeypatch)
    A = spd(5, 1e2, batch=7)
    whole, _ = backends.get("metal").inverse_root(A, 2, **root_options())
    monkeypatch.setattr(launcher, "_MATRICES_PER_LAUNCH", 3)
    pieces, _ = backends.get("metal").inverse_root(A, 2, **root_options())
    assert torch.equal(pieces, whole) and len(compiler.launches) == 1 + 3


def roots(monkeypatch, edit, p=4):
    """Yield roots of a kernel whose source is edited, in every order of threads."""
    for order in ORDERS:
        emulate(monkeypatch, order=order, edit=edit)
        A = spd(61, 1e4, "log", batch=1)
        root, bound = torch.empty_like(A), torch.empty(1)
        launcher.inverse_root(A, p, out=(root, bound), **root_options())
        yield root, bound


def are_right(results, expected):
    return all(
        torch.equal(root, root.mT) and torch.equal(root, expected[0]) and torch.equal(bound, expected[1])
        for root, bound in results
    )


@pytest.fixture(scope="module")
def expected(request):
    require_clang(request.config)
    with pytest.MonkeyPatch.context() as patch:
        results = list(roots(patch, str))
    assert are_right(results, results[0])
    assert relative_error(results[0][0], true_inverse_root(spd(61, 1e4, "log", batch=1), 4)) <= 2e-4
    return results[0]


def dropped(index):
    def edit(source):
        parts = source.split(BARRIER)
        assert len(parts) == 11
        return BARRIER.join(parts[: index + 1]) + BARRIER.join(parts[index + 1 :])

    return edit


@pytest.mark.parametrize("index", [2, 5, 6, 7, 8])
def test_a_dropped_barrier_is_caught(monkeypatch, expected, index):
    assert not are_right(roots(monkeypatch, dropped(index)), expected)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    if (r > c) X[first", "    if (r > c && d < 7u) X[first"),
        ("P + (block.y * 4u + k) * kBlock, 8, ulong2(0, 0), true", "P + (block.y * 4u + k) * kBlock, 8"),
        ("X + block_number(j, i) * kBlock, 8, ulong2(0, 0), true", "X + block_number(j, i) * kBlock, 8"),
        ("load_block(left, Z, block.x, 4u * Half + k);", "load_block(left, Z, block.x, k);"),
        ("max(at.x, at.y) < n ? fma", "max(at.x, at.y) < n + 1u ? fma"),
    ],
)
def test_a_wrong_index_is_caught(monkeypatch, expected, old, new):
    assert not are_right(roots(monkeypatch, lambda source: replace_once(source, old, new)), expected)


def test_mirroring_P_too_diverges(monkeypatch):
    """Why P is computed in full: mirrored like Y and Z it ruins what condition 1e4 leaves."""
    mirrored = """
    simdgroup_store(scaled, P + (own.simdgroup * 4u + u) * kBlock, 8);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (Half == 0u) {
    for (uint e = own.index; e < 4u * 4u * kBlock; e += kThreads) {
      const uint t = e / kBlock, r = t / 4u * 8u + e % kBlock / 8u, c = t % 4u * 8u + e % 8u;
      if (r > c) P[t * kBlock + e % kBlock] = P[(c / 8u * 4u + r / 8u) * kBlock + c % 8u * 8u + r % 8u];
    }
"""
    old = """
    simdgroup_store(scaled, P + (own.simdgroup * 4u + u) * kBlock, 8);
"""
    root, _ = next(roots(monkeypatch, lambda source: replace_once(source, old, mirrored), p=2))
    assert not relative_error(root, true_inverse_root(spd(61, 1e4, "log", batch=1), 2)) <= 1e-2


def test_called_again_and_with_whole_numbers_it_gives_the_same_bits(backend):
    """Elsewhere a second call ended the process, and so did a number of another type than the matrix."""
    for n in (20, 70):
        A = spd(n, 1e2)
        expected = backend.inverse_root(A, 2, **root_options(damping=1.0))
        for damping in (1.0, 1, True):
            for found, wanted in zip(
                backend.inverse_root(A, 2, **root_options(damping=damping)), expected, strict=True
            ):
                assert torch.equal(found, wanted)


def test_a_root_has_the_same_bits_alone_and_in_a_batch(backend):
    for n in (5, 20, 64):
        A = spd(n, 1e4, batch=5)
        for p in (1, 2, 4):
            root, bound = backend.inverse_root(A, p, **root_options())
            alone, alone_bound = backend.inverse_root(A[3], p, **root_options())
            assert torch.equal(alone, root[3]) and torch.equal(alone_bound, bound[3])
