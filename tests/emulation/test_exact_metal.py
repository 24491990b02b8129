import numpy as np
import pytest
import torch

from kpop_kernels import backends, selftest
from kpop_kernels.backends.metal import _shader, canary
from tests.emulation.metal_backend import emulate, replace_once, require_clang, serve_metal
from tests.emulation.metal_emulator import compile_shader
from tests.emulation.metal_modes import MODES

SMALLEST_NORMAL = np.float32(2.0**-126)


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


def flushed(x):
    return np.where(np.abs(x) < SMALLEST_NORMAL, np.float32(0), x)


def fractions(x):
    return ((x - np.floor(x)) * np.float32(65536)).astype(np.uint32)


# Scaling by a power of two is exact: without underflow, one exponent stands for all of them.
EXACT_FUNCTIONS = {
    "divide_by_254": (
        "as_type<uint>(divide_rounded(x, 254u))",
        (1, 7, 8, 9, 127, 254),
        lambda x: flushed(x / np.float32(254)).view(np.uint32),
    ),
    "divide_by_255": (
        "as_type<uint>(divide_rounded(x, 255u))",
        (7, 8, 127),
        lambda x: flushed(x / np.float32(255)).view(np.uint32),
    ),
    "reciprocal_rounded": (
        "as_type<uint>(reciprocal_rounded(x))",
        (1, 127, 252),
        lambda x: (np.float32(1) / x).view(np.uint32),
    ),
    "multiply_rounded_before_a_sum": (
        "as_type<uint>(multiply_rounded(x, as_type<float>(0x3f8ccccdu), negative_zero(prm[0])) - 1.25f)",
        (126, 127, 130),
        lambda x: (x * np.float32(1.1) - np.float32(1.25)).view(np.uint32),
    ),
    "fraction16": ("fraction16(x)", (126, 130, 256 + 101, 256 + 103, 256 + 126, 256 + 133), fractions),
    "nearest_half": (
        "uint(as_type<ushort>(nearest_half(as_type<uint>(x))))",
        (101, 102, 108, 112, 113, 142, 143, 255, 256 + 112),
        lambda x: torch.from_numpy(x).half().view(torch.int16).numpy().view(np.uint16),
    ),
}


@pytest.fixture(scope="module")
def library():
    """Return one probe a function, in every mode; the modes share their compilations."""

    def compiled(mode):
        return libraries.setdefault(mode, compile_shader(source, mode=mode))

    libraries = {}
    source = _shader.read_source("exact") + "".join(
        f"""kernel void {name}(device uint* out, constant long* prm, uint i [[thread_position_in_grid]]) {{
      for (ulong m = ulong(i) * 1024ul; m < ulong(i) * 1024ul + 1024ul; ++m) {{
        const float x = as_type<float>(uint(prm[0]) << 23 | uint(m));
        out[m] = {call};
      }}
    }}"""
        for name, (call, _, _) in EXACT_FUNCTIONS.items()
    )
    return compiled


@pytest.mark.parametrize("name", EXACT_FUNCTIONS)
def test_exact_functions_over_all_mantissas(library, name):
    _, exponents, reference = EXACT_FUNCTIONS[name]
    got = torch.empty(2**23, dtype=torch.int32)
    for exponent in exponents:
        x = (np.arange(2**23, dtype=np.uint32) | np.uint32(exponent << 23)).view(np.float32)
        want = reference(x)
        for mode in MODES:
            getattr(library(mode), name)(got.fill_(-1), [exponent], threads=2**13, group_size=256)
            different = got.numpy().view(np.uint32) != want
            assert np.count_nonzero(different & ~np.isnan(x)) == 0, (exponent, mode)


DEVIATIONS = {
    "exact": set(),
    "flush": {"subnormal_operands", "subnormal_results"},
    "contract": {"statement_contracted"},
    "division_high": {"quotient", "reciprocal"},
    "division_low": {"quotient", "reciprocal"},
}


@pytest.mark.parametrize("mode", MODES)
def test_canary_finds_what_the_mode_changes(monkeypatch, mode):
    compiler = emulate(monkeypatch, mode=mode)
    findings = canary.check_arithmetic("cpu")
    assert compiler.launches == ["canary", "canary_sums"]
    assert findings["bits_promised"] and all(findings[name] for name in canary.REQUIRED)
    usual = {name: name != "statement_contracted" for name in findings}
    if mode in DEVIATIONS:
        assert {name for name in findings if findings[name] != usual[name]} == DEVIATIONS[mode]


BROKEN = {
    "exact_product": ("fma(a, b, minus_zero)", "as_type<float>(as_type<uint>(a * b) + 1u)"),
    "exact_reciprocal": ("step < 5", "step < 0"),
    "exact_division": ("> divisor ? 1u", "> divisor ? 2u"),
    "exact_fraction": ("return uint(fraction * 65536.0f)", "return min(uint(fraction * 65536.0f), 65535u)"),
}


@pytest.mark.parametrize("finding", BROKEN)
def test_canary_withdraws_the_promise(monkeypatch, finding):
    emulate(monkeypatch, mode="division_high", edit=lambda source: replace_once(source, *BROKEN[finding]))
    findings = canary.check_arithmetic("cpu")
    assert [name for name in canary.REQUIRED if not findings[name]] == [finding]
    assert not findings["bits_promised"]


def test_a_product_that_the_compiler_knows_is_fused(monkeypatch):
    edit = lambda source: replace_once(source, "fma(a, b, minus_zero)", "fma(a, b, -0.0f)")
    emulate(monkeypatch, mode="contract", edit=edit)
    assert not canary.check_arithmetic("cpu")["exact_product"]


def outcomes(monkeypatch):
    """Return what the self-test says where the Metal backend is there."""
    monkeypatch.setattr(backends, "available", lambda: {"metal": None})
    return list(selftest.run(("cpu",)))


def test_self_test_runs_every_operator_and_the_canary(monkeypatch):
    compiler = serve_metal(monkeypatch)
    found = outcomes(monkeypatch)
    assert all(outcome.passed and outcome.backend == "metal" for outcome in found)
    served = backends.get("metal").operators
    assert [outcome.op for outcome in found] == [*served, "arithmetic"] and "adam8_foreach_" in served
    assert compiler.launches[-2:] == ["canary", "canary_sums"]


def test_self_test_reports_a_gpu_that_rounds_otherwise(monkeypatch):
    edit = lambda source: source.replace("fma(a, b, minus_zero)", "as_type<float>(as_type<uint>(a * b) + 1u)")
    serve_metal(monkeypatch, edit=edit)
    monkeypatch.setattr(backends.get("metal"), "_guarded", {})
    (outcome,) = outcomes(monkeypatch)
    assert outcome == selftest.Outcome("metal", "arithmetic", "cpu", 1.0, False)


def test_included_source_is_put_in_place_once():
    assert _shader.read_source("adam8").count("#include <metal_stdlib>") == 1
