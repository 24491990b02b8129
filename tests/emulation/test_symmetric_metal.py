"""Symmetric products on Metal's emulation: the tests of every backend, and those of the kernel itself."""

import re

import pytest
import torch

from kpop_kernels import backends
from kpop_kernels.backends.metal import _products, _shader
from kpop_kernels.backends.metal import symmetric as launcher
from tests.emulation.metal_backend import emulate, replace_once, require_clang, run_guarded, serve_metal
from tests.emulation.metal_emulator import ORDERS
from tests.ops.matrices import relative_error
from tests.ops.test_symmetric import (  # noqa: F401 - run here on the fixture below
    test_addend_is_not_read_when_beta_is_zero,
    test_deterministic_and_independent_of_threads,
    test_empty,
    test_layouts,
    test_leaves_inputs_unchanged,
    test_poison_stays_in_its_matrix,
    test_product_of_commuting_matrices,
    test_symm_mm_matches_float64,
    test_syrk_matches_float64,
    test_writes_nothing_else,
)

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
NARROW = re.compile(r"template \[\[host_name\(\"\w+_b?float16\"\)\]\][^;]*;")
BAND = 1000
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


@pytest.fixture
def backend(monkeypatch):
    serve_metal(monkeypatch)
    return backends.get("metal")


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("mode", "dtype"), [("flush", DTYPES[0]), ("fast", DTYPES[1]), ("contract", DTYPES[2])]
)
def test_every_order_of_threads_gives_the_same_bits(monkeypatch, mode, dtype):
    A, C = normal(2, 130, 40).to(dtype), normal(2, 130, 130)
    C = (C + C.mT).to(dtype)
    results = []
    for order in ORDERS:
        compiler = serve_metal(monkeypatch, mode=mode, order=order)
        (result,) = run_guarded("symm_mm", {"A": A, "B": A.mT.contiguous()}, C=C, alpha=0.5, beta=-1.5)
        results.append(result)
        assert len(compiler.launches) == 1
    assert all(torch.equal(result, results[0]) for result in results)
    assert torch.equal(results[0], results[0].mT)
    expected = 0.5 * A.double() @ A.double().mT - 1.5 * C.double()
    assert relative_error(results[0], expected) <= max(1e-6, torch.finfo(dtype).eps / 2)


@pytest.mark.parametrize("n", [63, 64, 65, 128, 129, 193, 257])
def test_every_tile_of_the_folded_triangle_is_computed_once(backend, monkeypatch, n):
    X = normal(3, n, 2)
    whole = backend.syrk(X, C=None, alpha=1.0, beta=0.0, side="left")
    assert relative_error(whole, X.double() @ X.double().mT) <= 1e-6
    monkeypatch.setattr(_products, "_TILES_PER_LAUNCH", 4)
    pieces = backend.syrk(X, C=None, alpha=1.0, beta=0.0, side="left", out=torch.full_like(whole, torch.nan))
    assert torch.equal(pieces, whole)


def test_indices_reach_beyond_32_bits(monkeypatch):
    """The offset of an item, and the number of a tile, are computed in 64 bits."""
    source = _shader.read_source("symmetric")
    assert re.search(r"struct Tile {\n  ulong item;", source)
    assert "A + tile.item * ulong(prm[4]) + tile.row * rows.line" in source
    asked = []
    monkeypatch.setattr(_shader, "kernel", lambda *names: lambda *args, **grid: asked.append((args, grid)))
    X = torch.empty(2**20, 64, 1, device="meta")
    launcher.syrk(X, C=None, alpha=1.0, beta=0.0, side="left", out=torch.empty(2**20, 64, 64, device="meta"))
    assert sum(grid["threads"] for _, grid in asked) == 2**27
    huge = torch.empty(65536, 65536, device="meta")
    asked.clear()
    launcher.syrk(huge, C=None, alpha=1.0, beta=0.0, side="left", out=huge.clone())
    firsts = [args[4][0] for args, _ in asked]
    assert firsts == sorted(set(firsts)) and max(grid["threads"] for _, grid in asked) < 2**32


def test_called_again_and_with_whole_numbers_it_gives_the_same_bits(backend):
    """Elsewhere a second call ended the process, and so did a number of another type than the matrix."""
    X, C = normal(2, 20, 7), normal(2, 20, 20, seed=1)
    for dtype in DTYPES:
        narrow, addend = X.to(dtype), (C + C.mT).to(dtype)
        expected = backend.syrk(narrow, C=addend, alpha=1.0, beta=1.0, side="left")
        for number in (1.0, 1, True):
            again = backend.syrk(narrow, C=addend, alpha=number, beta=number, side="left")
            assert torch.equal(again, expected)


def planted(monkeypatch, edit):
    """Return the product of a kernel whose source is edited, in every order of threads."""
    results = []
    for order in ORDERS:
        emulate(monkeypatch, order=order, edit=lambda source: edit(NARROW.sub("", source)))
        X, C, memory = (
            normal(2, 130, 40),
            normal(2, 130, 130, seed=1),
            torch.full((2 * 130**2 + 2 * BAND,), torch.nan),
        )
        out = memory[BAND:-BAND].view(2, 130, 130)
        launcher.syrk(X, C=C + C.mT, alpha=0.5, beta=2.0, side="left", out=out)
        results.append(out)
        if not (memory[:BAND].isnan().all() and memory[-BAND:].isnan().all()):
            out.fill_(torch.nan)
    return results


def is_right(results):
    X, C = normal(2, 130, 40).double(), normal(2, 130, 130, seed=1).double()
    expected = 0.5 * X @ X.mT + 2 * (C + C.mT)
    same = all(torch.equal(result, results[0]) for result in results)
    return same and torch.equal(results[0], results[0].mT) and relative_error(results[0], expected) <= 1e-6


def test_without_a_bug_all_is_right(monkeypatch):
    assert is_right(planted(monkeypatch, str))


@pytest.mark.parametrize("index", range(6))
def test_a_dropped_barrier_is_caught(monkeypatch, index):
    def edit(source):
        before, after = source.split(BARRIER)[: index + 1], source.split(BARRIER)[index + 1 :]
        assert len(before) + len(after) == 7
        return BARRIER.join(before) + BARRIER.join(after)

    assert not is_right(planted(monkeypatch, edit))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("line < lines.count && from + k < depth", "line < lines.count"),
        ("(folded ? tiles - 1u + odd - y : y)", "(folded ? tiles - 1u - y : y)"),
        ("if (i >= place.n || j > i) continue;", "if (i > place.n || j > i) continue;"),
        ("store(out, ulong(j) * place.n + i,", "store(out, ulong(i) * place.n + j,"),
        ("simdgroup % 2u * kHalf, recent", "simdgroup / 2u * kHalf, recent"),
        ("value = fma(beta, C[at], value);", "value = fma(beta, C[at], sums[q]);"),
    ],
)
def test_a_wrong_index_is_caught(monkeypatch, old, new):
    assert not is_right(planted(monkeypatch, lambda source: replace_once(source, old, new)))
