"""Stochastic rounding of the Metal backend, emulated: unbiased, independent from key to key, alike in shards."""

import pytest

from tests.emulation.metal_backend import require_clang, serve_metal
from tests.ops.launch import Launcher
from tests.ops.rounding import PROMISES, ROUNDING


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("op", ROUNDING)
def test_rounding_at_random(monkeypatch, pytestconfig, op, promise):
    require_clang(pytestconfig)
    compiler = serve_metal(monkeypatch, mode="fast")
    PROMISES[promise](lambda name: Launcher(name, "metal"), op)
    assert compiler.launches and all(name.startswith(op.rstrip("_")) for name in compiler.launches)
