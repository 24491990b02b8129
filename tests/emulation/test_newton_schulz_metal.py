"""Polar factors on Metal's emulation: torch's products, and by halves where they are large."""

import pytest
import torch

from kpop_kernels import backends, coefficients
from kpop_kernels.backends import _polar
from kpop_kernels.backends.metal import _torch_products
from kpop_kernels.backends.metal import newton_schulz as launcher
from python_ref import newton_schulz as oracle
from python_ref.inverse_root import inverse_root as true_inverse_root
from tests.emulation.metal_backend import require_clang, serve_metal
from tests.ops.matrices import relative_error, root_options, spd
from tests.ops.test_newton_schulz import (  # noqa: F401 - run here on the fixture below
    test_halves_keep_low_rank_plus_noise,
)

OPTIONS = {"method": "standard", "restarts": [2], "normalize": True, "eps": 0.0}
STEPS = [(3.4445, -4.7750, 2.0315)] * 5


@pytest.fixture
def backend(monkeypatch, pytestconfig):
    require_clang(pytestconfig)
    serve_metal(monkeypatch)
    monkeypatch.setattr(launcher, "LEAST_ORDER", 8)
    return backends.get("metal")


@pytest.mark.parametrize("shape", [(1, 1), (8, 3), (9, 70), (65, 65), (130, 40)])
@pytest.mark.parametrize("method", ["standard", "gram"])
def test_matches_reference(backend, shape, method):
    steps = coefficients.polar_schedule("polar_express", 5)
    X = torch.randn(2, *shape, generator=torch.Generator().manual_seed(1))
    result = backend.newton_schulz(
        X, coefficients=[c for step in steps for c in step], **OPTIONS | {"method": method}
    )
    assert relative_error(result, oracle.map_singular_values(X, steps)) <= 5e-5


@pytest.mark.parametrize("method", ["standard", "gram"])
def test_large_symmetric_products_are_halves(monkeypatch, pytestconfig, method):
    require_clang(pytestconfig)
    compiler = serve_metal(monkeypatch)
    monkeypatch.setattr(launcher, "LEAST_ORDER", 20)
    X = torch.randn(2, 20, 60, generator=torch.Generator().manual_seed(0))
    options = OPTIONS | {"method": method}
    flat = [c for step in STEPS for c in step]
    result = backends.get("metal").newton_schulz(X, coefficients=flat, **options)
    assert relative_error(result, oracle.map_singular_values(X, STEPS)) <= 2e-5
    standard, gram = 2 * 5, 2 + 5 + 3 + 2 * 3
    products = standard if method == "standard" else gram
    assert compiler.launches == ["symmetric_product_float32_float32"] * products
    out = [torch.empty_like(X[0]), torch.empty_like(X)]
    backends.get("metal").newton_schulz_foreach([X[0], X], out, coefficients=flat, **options)
    assert relative_error(out[1], result) <= 1e-5 and relative_error(out[0][None], result[:1]) <= 1e-5


@pytest.mark.parametrize("halves", [True, False])
@pytest.mark.parametrize("method", ["standard", "gram"])
def test_no_product_of_torch_reaches_the_size_at_which_a_band_of_nan_was_written(
    monkeypatch, pytestconfig, method, halves
):
    """Roots beyond threadgroup memory too; the limit is lowered to one that small matrices reach."""
    require_clang(pytestconfig)
    serve_metal(monkeypatch)
    limit, asked = 2**15, []
    monkeypatch.setattr(_torch_products, "LARGEST_BYTES", limit)
    monkeypatch.setattr(launcher, "LEAST_ORDER", 20 if halves else 100)
    for name in ("bmm", "baddbmm"):
        monkeypatch.setattr(torch, name, watched(getattr(torch, name), asked))
    X = torch.randn(2, 30, 301, generator=torch.Generator().manual_seed(0))
    flat = [c for step in STEPS for c in step]
    result = backends.get("metal").newton_schulz(X, coefficients=flat, **OPTIONS | {"method": method})
    root, _ = backends.get("metal").inverse_root(spd(70, 1e3), 2, **root_options())
    assert limit < min((30 + 2 * 30) * 301 * 4, (70 + 2 * 70) * 70 * 4)
    assert asked and max(asked) < limit
    assert relative_error(result, oracle.map_singular_values(X, STEPS)) <= 2e-5
    assert relative_error(root, true_inverse_root(spd(70, 1e3), 2)) <= 2e-4


def watched(function, asked):
    def watching(*factors, **scalars):
        (m, k), n = factors[-2].shape[-2:], factors[-1].shape[-1]
        asked.append((m + 2 * k) * n * factors[-1].itemsize)
        return function(*factors, **scalars)

    return watching


@pytest.mark.parametrize(
    ("name", "units"),
    [("Apple M1 Ultra", False), ("Apple M4 Pro", False), ("Apple M5", True), ("Apple M10 Max", True)],
)
def test_chips_with_matrix_units_use_torch(monkeypatch, name, units):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "get_name", lambda: name)
    launcher._has_matrix_units.cache_clear()
    try:
        assert launcher._has_matrix_units() is units
        halves = isinstance(launcher._products(torch.empty(600, 600)), _polar.HalfProducts)
        assert halves is not units
    finally:
        launcher._has_matrix_units.cache_clear()
