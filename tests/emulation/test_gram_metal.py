"""Covariance updates on Metal's emulation, against the oracle."""

import pytest
import torch

from kpop_kernels import backends
from kpop_kernels.backends.metal import gram as launcher
from tests.emulation.metal_backend import replace_once, require_clang, serve_metal
from tests.emulation.metal_emulator import ORDERS
from tests.matrices import normal
from tests.ops.blocks import DTYPES
from tests.ops.launch import LAYOUTS, Launcher, assert_same_bits, outcome, strided
from tests.ops.test_gram_ema import GRID, SCALARS, WRITTEN, arguments, check


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(7)


def update(tensors, **scalars):
    return outcome(Launcher("gram_ema_", "metal"), tensors, WRITTEN, **(SCALARS | {"side": "left"} | scalars))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("batch", "n", "k", "side"), GRID)
def test_matches_reference(monkeypatch, generator, batch, n, k, side, dtype):
    compiler = serve_metal(monkeypatch)
    tensors = arguments(generator, batch, n, k, side, dtype)
    check("metal", tensors, side)
    # The usual case: a covariance kept in float32.
    check("metal", tensors | {"S": tensors["S"].float()}, side)
    name = str(dtype).removeprefix("torch.")
    kernels = [f"symmetric_product_{name}_{kept}" for kept in (name, "float32")]
    assert sorted(compiler.launches) == (sorted(kernels) if tensors["S"].numel() else [])


@pytest.mark.parametrize("S_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("X_dtype", [*DTYPES, torch.float64], ids=str)
def test_mixes_dtypes(monkeypatch, generator, S_dtype, X_dtype):
    serve_metal(monkeypatch)
    tensors = arguments(generator, (), 33, 17, "left", S_dtype)
    check("metal", tensors | {"X": tensors["X"].to(X_dtype)}, "left")


@pytest.mark.parametrize("side", ["left", "right"])
def test_layouts(monkeypatch, generator, side):
    serve_metal(monkeypatch)
    for layout in LAYOUTS:
        for name in ("S", "X"):
            tensors = arguments(generator, (2,), 35, 9, side)
            check("metal", tensors | {name: strided(tensors[name], layout)}, side)
    tensors = arguments(generator, (3,), 7, 5, "left")
    check("metal", tensors | {"X": tensors["X"][0].expand(3, 7, 5)}, "left")


def test_bad_values_poison_only_their_matrix(monkeypatch, generator):
    serve_metal(monkeypatch)
    tensors = arguments(generator, (3,), 65, 17, "left")
    (clean,) = update(tensors)
    for bad in (torch.nan, torch.inf):
        tensors["X"][1, 5, 3] = bad
        (poisoned,) = update(tensors)
        assert not poisoned[1].isfinite().all()
        assert_same_bits([poisoned[[0, 2]]], [clean[[0, 2]]])


def test_what_is_forgotten_is_not_read(monkeypatch, generator):
    serve_metal(monkeypatch)
    tensors = arguments(generator, (2,), 20, 9, "left")
    nothing = tensors | {"S": torch.full_like(tensors["S"], torch.nan)}
    assert_same_bits(update(nothing, beta=0.0), update(tensors, beta=0.0))


def reads_the_lower_triangle(generator):
    tensors = arguments(generator, (2,), 130, 7, "left")
    garbage = tensors["S"].tril() + torch.full((130, 130), torch.nan).triu(1)
    results = [update(tensors), update(tensors | {"S": garbage})]
    return torch.equal(results[0][0], results[1][0]) and not results[0][0].isnan().any()


@pytest.mark.parametrize("order", ORDERS)
def test_reads_only_the_lower_triangle_and_before_it_is_written(monkeypatch, generator, order):
    serve_metal(monkeypatch, order=order)
    assert reads_the_lower_triangle(generator)


@pytest.mark.parametrize("order", ORDERS)
def test_reading_the_upper_triangle_is_caught(monkeypatch, generator, order):
    edit = lambda source: replace_once(source, "beta, C[at]", "beta, C[ulong(j) * place.n + i]")
    serve_metal(monkeypatch, order=order, edit=edit)
    assert not reads_the_lower_triangle(generator)


def test_a_single_chain_of_long_sums_is_caught(monkeypatch, generator):
    """Its rounding errors add up to more than the operator promises."""
    edit = lambda source: replace_once(source, "kChunk = 256;", "kChunk = 8192;")
    serve_metal(monkeypatch, edit=edit)
    with pytest.raises(AssertionError, match="S: error"):
        check("metal", arguments(generator, (), 96, 4096, "left"), "left")


def test_a_covariance_in_float32_is_updated_where_it_lies(monkeypatch):
    """No copy of it is made: what the kernel reads and writes is the memory of S."""
    seen = []
    monkeypatch.setattr(launcher, "syrk", lambda X, *, C, out, **options: seen.append((C, out)))
    S = torch.zeros(3, 3)
    launcher.gram_ema_(S, torch.ones(3, 2).bfloat16(), beta=0.5, alpha=1.0, side="left")
    assert seen[0][0] is S and seen[0][1] is S


def test_a_list_is_what_its_items_are(monkeypatch, generator):
    serve_metal(monkeypatch)
    S = [normal(generator, n, n, dtype=torch.float32) for n in (5, 66)]
    X = [normal(generator, 5, 9, dtype=torch.float32), normal(generator, 3, 66, dtype=torch.bfloat16)]
    alone = [
        update({"S": s, "X": x}, side=side)[0] for s, x, side in zip(S, X, ("left", "right"), strict=True)
    ]
    numbers = SCALARS | {"alpha": [SCALARS["alpha"]] * 2}
    backends.get("metal").gram_ema_foreach_(S, X, **numbers, side=["left", "right"])
    assert_same_bits(S, alone)
