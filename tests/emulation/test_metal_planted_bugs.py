"""The tests of the tests: each plants one bug in the shipped sources and passes only if it is caught."""

import pytest
import torch

from kpop_kernels.backends.metal import absmax_quantize as launcher
from tests.emulation import absmax_reference
from tests.emulation.metal_arguments import LaunchError
from tests.emulation.metal_backend import Bands, emulate, mutated, replace_once, require_clang
from tests.emulation.metal_emulator import ORDERS, KernelFault
from tests.emulation.metal_lint import lint

BARRIER = "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
REDUCTION = "  peak = simd_max(peak);\n"


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


def run(monkeypatch, *, old=None, new="", module=launcher, block_size=256, size=1000, **choices):
    """Run the launcher, with one text of the kernel replaced; return whether results and bands are right."""
    edit = (lambda source: replace_once(source, old, new)) if old else str
    compiler, bands = emulate(monkeypatch, edit=edit, **choices), Bands()
    x = torch.randn(size, generator=torch.Generator().manual_seed(0))
    guarded = bands.copy(x)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", bands.empty)
        codes, scales = module.absmax_quantize(guarded, block_size=block_size)
    assert compiler.launches == ["absmax_quantize_float32"]
    want_codes, want_scales = absmax_reference.absmax_quantize(x.numpy(), block_size)
    codes_right = torch.equal(codes, torch.from_numpy(want_codes))
    scales_right = torch.equal(scales.view(torch.int32), torch.from_numpy(want_scales).view(torch.int32))
    return codes_right and scales_right and bands.intact()


def test_without_a_bug_all_is_right(monkeypatch):
    assert all(run(monkeypatch, order=order) for order in ORDERS)


@pytest.mark.parametrize("order", ORDERS)
def test_dropped_barrier(monkeypatch, order):
    assert not run(monkeypatch, old=BARRIER, order=order)


def test_wrong_lane(monkeypatch):
    assert not run(monkeypatch, old=REDUCTION, new="  peak = simd_shuffle(peak, 1);\n")


def test_missing_mask(monkeypatch):
    old = "uint(min(ulong(prm[1]), ulong(prm[0]) - first))"
    assert not run(monkeypatch, old=old, new="uint(prm[1])")


def test_wrong_stride(monkeypatch):
    old = "for (uint i = thread_id; i < count; i += threads) {\n    peak"
    assert not run(monkeypatch, old=old, new=old.replace("+= threads", "+= 2u * threads"), block_size=1024)


def test_barrier_that_some_threads_skip(monkeypatch):
    with pytest.raises(KernelFault, match="is not reached by all threads"):
        run(monkeypatch, old=BARRIER, new="  if (thread_id >= count) return;\n" + BARRIER, size=1000)


def test_barrier_in_two_branches(monkeypatch):
    with pytest.raises(KernelFault, match="different barriers"):
        run(monkeypatch, old=BARRIER, new=f"if (lane == 0u) {{\n{BARRIER} }} else {{\n{BARRIER} }}\n")


def test_simdgroup_operation_in_divergent_flow(monkeypatch):
    with pytest.raises(KernelFault, match="simdgroup operation in divergent control flow"):
        run(monkeypatch, old=REDUCTION, new="  if (lane < 16u) peak = simd_max(peak);\n")


def test_simdgroup_operations_in_two_branches(monkeypatch):
    branches = "  if (lane < 16u) { peak = simd_max(peak); } else { peak = simd_min(peak); }\n"
    with pytest.raises(KernelFault, match="different simdgroup operations"):
        run(monkeypatch, old=REDUCTION, new=branches)


def test_threadgroup_index_out_of_bounds(monkeypatch):
    with pytest.raises(KernelFault, match="an index outside an array"):
        run(monkeypatch, old="peaks[simdgroup] = peak", new="peaks[simdgroup + 1u] = peak")


def test_threadgroup_write_out_of_bounds_through_a_pointer(monkeypatch):
    new = "threadgroup uint* p = peaks; p[simdgroup + 1u] = peak"
    with pytest.raises(KernelFault, match="a write outside a threadgroup variable"):
        run(monkeypatch, old="if (lane == 0u) peaks[simdgroup] = peak", new=new)


def test_float_out_of_the_range_of_an_integer(monkeypatch):
    old = "round_half_up(multiply_rounded(x, inverse_scale))"
    with pytest.raises(KernelFault, match="integer type that cannot hold it"):
        run(monkeypatch, old=old, new="int(multiply_rounded(x, inverse_scale) * 1.0e9f)")


@pytest.mark.parametrize("mode", ["division_high", "division_low"])
def test_trust_in_the_division_of_the_gpu(monkeypatch, mode):
    # One code in 3e5 changes with a reciprocal that is off by one unit; ordinary sizes do not see it.
    old = "reciprocal_rounded(scale);"
    assert not run(monkeypatch, old=old, new="1.0f / scale;", size=2**21, mode=mode)


def test_subnormal_input_that_is_kept(monkeypatch):
    x = torch.tensor([0.95 * 2.0**-126, 127 * 2.0**-126])
    flush = "  return magnitude(x) == 0u ? 0.0f : x;\n"
    emulate(monkeypatch, edit=lambda source: replace_once(source, flush, "  return x;\n"))
    codes, _ = launcher.absmax_quantize(x, block_size=32)
    want, _ = absmax_reference.absmax_quantize(x.numpy(), 32)
    assert codes.tolist() != want.tolist()


def test_buffers_swapped_in_the_kernel(monkeypatch):
    def swap(source):
        source = replace_once(
            source, "device char* codes      [[buffer(1)]]", "device char* codes [[buffer(2)]]"
        )
        return replace_once(
            source, "device uint* scales     [[buffer(2)]]", "device uint* scales [[buffer(1)]]"
        )

    emulate(monkeypatch, edit=swap)
    with pytest.raises(LaunchError, match=r"scales, is torch\.int8, the kernel reads uint"):
        launcher.absmax_quantize(torch.ones(4), block_size=32)


LAUNCHER_BUGS = {
    "wrong buffer order": (
        "            flat[start : start + count],\n            codes[start : start + count],\n",
        "            codes[start : start + count],\n            flat[start : start + count],\n",
        "x, is torch.int8, the kernel reads float",
    ),
    "missing buffer": ("            codes[start : start + count],\n", "", "reads 4 buffers .* 3 are given"),
    "scales not viewed as integers": (".view(torch.int32)", "", "is torch.float32, the kernel reads uint"),
    "integers as floats": ("[count, block_size]", "[float(count), block_size]", "float of 4 bytes"),
    "not contiguous": ("x.contiguous().view(-1)", "x.T", "is not contiguous"),
    "wrong kernel": ("_{_DTYPES[x.dtype]}", "_float16", "is torch.float32, the kernel reads half"),
    "group too large": ("group_size=group_size", "group_size=512", "has 512 threads, .* allows 256"),
    "group of another rank": ("group_size=group_size", "group_size=(32, 1)", "need the same rank"),
}


@pytest.mark.parametrize("bug", LAUNCHER_BUGS)
def test_launcher_bug(monkeypatch, bug):
    old, new, message = LAUNCHER_BUGS[bug]
    emulate(monkeypatch)
    with pytest.raises(LaunchError, match=message):
        mutated(launcher, old, new).absmax_quantize(torch.ones(64, 4), block_size=32)


def test_wrong_number_of_threads(monkeypatch):
    module = mutated(launcher, "threads=blocks * group_size", "threads=blocks")
    assert not run(monkeypatch, module=module)


def test_int64_read_as_uint(monkeypatch):
    emulate(monkeypatch, edit=lambda source: replace_once(source, "constant long* prm", "constant uint* prm"))
    with pytest.raises(LaunchError, match="bound as int of 8 bytes, the kernel reads uint"):
        launcher.absmax_quantize(torch.ones(4), block_size=32)


COMPILER_BUGS = {
    "lost address space": ("device const T* x", "const T* x", "needs an attribute, or a device"),
    "other address space": (
        "  const ulong first",
        "  device uint* p = peaks;\n  const ulong first",
        "cannot initialize a variable of type 'device uint",
    ),
    "write to a const buffer": (
        "  uint peak = 0u;\n",
        "  uint peak = 0u; x[0] = T(0.0f);\n",
        "is not assignable",
    ),
    "double literal": ("fma(a, b, 0.0f)", "fma(a, b, 0.0)", "'float' to 'double'"),
    "implicit rounding": (
        "  uint peak = 0u;\n",
        "  uint peak = 0u; half h = widen(x[0]);\n",
        "loses floating-point",
    ),
    "C++17": ("if (exponent < 125u)", "if constexpr (kMantissa > 0u)", "constexpr if is incompatible"),
    "64-bit simdgroup function": (
        "simd_max(peak)",
        "simd_max(ulong(peak))",
        "take no 64-bit type and no bfloat",
    ),
    "threadgroup memory": ("peaks[kMaxSimdgroups]", "peaks[8193]", "needs 32784 bytes of threadgroup memory"),
    "two threadgroup variables": (
        "peaks[kMaxSimdgroups];",
        "peaks[8], more[8];",
        "one threadgroup variable a",
    ),
}


@pytest.mark.parametrize("bug", COMPILER_BUGS)
def test_source_that_apple_rejects(monkeypatch, bug):
    old, new, message = COMPILER_BUGS[bug]
    emulate(monkeypatch, edit=lambda source: replace_once(source, old, new))
    with pytest.raises((SyntaxError, RuntimeError), match=message):
        launcher.absmax_quantize(torch.ones(4), block_size=32)


LINT_BUGS = {
    "fp-pragmas": ("exact", "#pragma METAL fp contract(off)\n", ""),
    "wide-index": ("absmax_quantize", "ulong(block) * ulong(prm[1])", "block * uint(prm[1])"),
    "nan-by-bits": ("absmax_quantize", "peak < kInfinity;", "!isinf(as_type<float>(peak));"),
    "thread-limit": ("absmax_quantize", "[[max_total_threads_per_threadgroup(256)]]\n", ""),
    "buffer-index": ("absmax_quantize", "[[buffer(2)]]", "[[buffer(1)]]"),
    "barrier-memory": ("absmax_quantize", "(mem_flags::mem_threadgroup)", "(mem_flags::mem_none)"),
    "simd-divergence": ("absmax_quantize", REDUCTION, "  if (lane < 16u) peak = simd_max(peak);\n"),
}


@pytest.mark.parametrize("rule", LINT_BUGS)
def test_bug_that_the_lint_sees(rule):
    name, old, new = LINT_BUGS[rule]
    text = replace_once((launcher._shader._DIRECTORY / f"{name}.metal").read_text(), old, new)
    assert rule in [finding.rule for finding in lint(text)]
