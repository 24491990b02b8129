"""Polar factors on Metal's emulation: torch's products, and by halves where they are large."""

import pytest
import torch

from kpop_kernels import backends, coefficients
from kpop_kernels.backends import _polar
from kpop_kernels.backends.metal import newton_schulz as launcher
from python_ref import newton_schulz as oracle
from tests.emulation.metal_backend import require_clang, serve_metal
from tests.ops.matrices import relative_error
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
