import math

import numpy as np
import pytest
import torch

from kpop_kernels.backends.metal import absmax_quantize as launcher
from kpop_kernels.backends.metal import canary
from tests.emulation import absmax_reference
from tests.emulation.metal_backend import Bands, emulate, require_clang
from tests.emulation.metal_emulator import ORDERS, compile_shader
from tests.emulation.metal_modes import MODES

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
SMALLEST_NORMAL = 2.0**-126


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


def bits(tensor):
    return tensor.view(torch.int32)


def check(monkeypatch, x, block_size, **choices):
    """Run the launcher on the emulation and compare bits with numpy; the tensors lie between guard bands."""
    compiler, bands = emulate(monkeypatch, **choices), Bands()
    guarded = bands.copy(x)
    monkeypatch.setattr(torch, "empty", bands.empty)
    codes, scales = launcher.absmax_quantize(guarded, block_size=block_size)
    monkeypatch.undo()
    assert compiler.launches == [f"absmax_quantize_{DTYPES[x.dtype]}"] * bool(x.numel())
    want_codes, want_scales = absmax_reference.absmax_quantize(x.float().numpy(), block_size)
    assert codes.shape == x.shape and codes.dtype == torch.int8
    assert torch.equal(codes, torch.from_numpy(want_codes))
    assert torch.equal(bits(scales), bits(torch.from_numpy(want_scales)))
    assert bands.intact()
    assert torch.equal(guarded.view(torch.uint8), x.contiguous().view(torch.uint8))


def wide_range(size, dtype):
    """Return normal variates times powers of ten over the range of the dtype, different for each block."""
    generator = torch.Generator().manual_seed(size)
    low, high = (-7.0, 4.0) if dtype == torch.float16 else (-40.0, 37.0)
    exponents = (
        low + (high - low) * torch.rand(-(-size // 32), generator=generator).repeat_interleave(32)[:size]
    )
    return (torch.randn(size, generator=generator) * 10.0**exponents).to(dtype)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPES.values())
def test_matches_reference_in_every_mode_and_order(monkeypatch, mode, order, dtype):
    for block_size in (32, 256, 2048):
        check(monkeypatch, wide_range(3 * 2048 + 77, dtype), block_size, mode=mode, order=order)


@pytest.mark.parametrize("block_size", launcher.BLOCK_SIZES)
@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 255, 257, 2047, 2048, 2049, 4999])
def test_sizes(monkeypatch, size, block_size):
    check(monkeypatch, wide_range(size, torch.float32), block_size)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "values",
    [
        pytest.param([0.0] * 40, id="zeros"),
        pytest.param([-0.0, 1.0, -1.0], id="negative zero"),
        pytest.param([1.0, math.nan, 3.0], id="nan"),
        pytest.param([1.0] * 40 + [math.inf], id="infinity in the last block"),
        pytest.param([-math.inf, 2.0], id="negative infinity"),
        pytest.param([2.0**-127, -(2.0**-149)], id="subnormal inputs"),
        pytest.param([127 * SMALLEST_NORMAL, 64 * SMALLEST_NORMAL], id="smallest scale"),
        pytest.param([126.99999 * SMALLEST_NORMAL, SMALLEST_NORMAL], id="scale just too small"),
        pytest.param([3.4028234e38, -3.4028234e38, 1.0], id="largest floats"),
        pytest.param([127.0, 0.5, 1.5, -0.5, -1.5, 2.5, -2.5, 0.49999997, -0.49999997], id="ties"),
        pytest.param([127.0, *(k + 0.5 for k in range(-127, 127))], id="all ties"),
    ],
)
def test_special_values(monkeypatch, values, mode):
    for block_size in (32, 256):
        check(monkeypatch, torch.tensor(values), block_size, mode=mode)


def test_half_subnormals_are_not_zero(monkeypatch):
    values = torch.arange(1, 0x400, dtype=torch.int16).view(torch.float16)
    for mode in MODES:
        check(monkeypatch, values, 1024, mode=mode)
    emulate(monkeypatch)
    assert launcher.absmax_quantize(values, block_size=1024)[1].item() > 0


@pytest.mark.parametrize("mode", MODES)
def test_a_million_elements(monkeypatch, mode):
    check(monkeypatch, wide_range(2**20 + 5, torch.float32), 256, mode=mode)


def test_layouts(monkeypatch):
    check(monkeypatch, wide_range(600, torch.float32).view(20, 30).T, 32)
    check(monkeypatch, wide_range(600, torch.float32)[3:597:2], 32)
    check(monkeypatch, torch.ones(1).expand(7, 9), 32)


def test_large_tensors_are_launched_in_pieces(monkeypatch):
    x = wide_range(5000, torch.float32)
    compiler = emulate(monkeypatch)
    whole = launcher.absmax_quantize(x, block_size=64)
    monkeypatch.setattr(launcher, "_ELEMENTS_PER_LAUNCH", 2048)
    pieces = launcher.absmax_quantize(x, block_size=64)
    assert compiler.launches == ["absmax_quantize_float32"] * 4
    assert torch.equal(whole[0], pieces[0]) and torch.equal(bits(whole[1]), bits(pieces[1]))


def test_rejects(monkeypatch):
    emulate(monkeypatch)
    with pytest.raises(ValueError, match="block_size must be one of 32, 64"):
        launcher.absmax_quantize(torch.ones(4), block_size=48)
    with pytest.raises(ValueError, match="x must be float32, float16 or bfloat16, not"):
        launcher.absmax_quantize(torch.ones(4, dtype=torch.float64), block_size=32)


# Scaling by a power of two is exact: without underflow, one exponent stands for all of them.
EXACT_FUNCTIONS = {
    "divide_by_127": (
        "as_type<uint>(divide_by_127(x))",
        (1, 2, 7, 8, 9, 127, 254),
        lambda x: flushed(x / np.float32(127)).view(np.uint32),
    ),
    "reciprocal_rounded": (
        "as_type<uint>(reciprocal_rounded(x))",
        (1, 127, 252),
        lambda x: (np.float32(1) / x).view(np.uint32),
    ),
    "multiply_rounded": (
        "as_type<uint>(multiply_rounded(x, as_type<float>(0x3f8ccccdu)))",
        (1, 127),
        lambda x: (x * np.float32(1.1)).view(np.uint32),
    ),
    "round_half_up": (
        "uint(round_half_up(x))",
        (100, 124, 125, 126, 127, 133, 256 + 125, 256 + 126, 256 + 133),
        lambda x: np.floor(x + np.float32(0.5)).astype(np.int32).view(np.uint32),
    ),
}


def flushed(x):
    return np.where(x < np.float32(SMALLEST_NORMAL), np.float32(0), x)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", EXACT_FUNCTIONS)
def test_exact_functions_over_all_mantissas(name, mode):
    call, exponents, reference = EXACT_FUNCTIONS[name]
    source = f"""{launcher._shader.read_source("exact")}
    kernel void probe(device uint* out, constant long* prm, uint i [[thread_position_in_grid]]) {{
      for (ulong m = ulong(i) * 1024ul; m < ulong(i) * 1024ul + 1024ul; ++m) {{
        const float x = as_type<float>(uint(prm[0]) << 23 | uint(m));
        out[m] = {call};
      }}
    }}"""
    library = compile_shader(source, mode=mode)
    got = torch.empty(2**23, dtype=torch.int32)
    for exponent in exponents:
        library.probe(got, [exponent], threads=2**13, group_size=256)
        x = (np.arange(2**23, dtype=np.uint32) | np.uint32(exponent << 23)).view(np.float32)
        assert np.count_nonzero(got.numpy().view(np.uint32) != reference(x)) == 0, exponent


DEVIATIONS = {
    "exact": set(),
    "flush": {"subnormal_operands", "subnormal_results"},
    "contract": {"statement_contracted"},
    "division_high": {"quotient", "reciprocal"},
    "division_low": {"quotient", "reciprocal"},
}


@pytest.mark.parametrize("mode", DEVIATIONS)
def test_canary_finds_what_the_mode_changes(monkeypatch, mode):
    compiler = emulate(monkeypatch, mode=mode)
    findings = canary.check_arithmetic("cpu")
    assert compiler.launches == ["canary", "canary_contraction"]
    usual = {name: name != "statement_contracted" for name in findings}
    assert {name for name in findings if findings[name] != usual[name]} == DEVIATIONS[mode]
    assert findings["bits_promised"]


def test_canary_withdraws_the_promise_when_products_are_wrong(monkeypatch):
    edit = lambda source: source.replace("fma(a, b, 0.0f)", "as_type<float>(as_type<uint>(a * b) + 1u)")
    emulate(monkeypatch, edit=edit)
    findings = canary.check_arithmetic("cpu")
    assert not findings["exact_product"] and not findings["bits_promised"]


def test_included_source_is_put_in_place_once():
    assert launcher._shader.read_source("absmax_quantize").count("#include <metal_stdlib>") == 1
