"""The tests of the tests: each plants one bug in the shipped sources and passes only if it is caught."""

import re

import pytest
import torch

from kpop_kernels.backends.metal import _blocks, _shader, ema8
from kpop_kernels.backends.metal import quantize_int8 as launcher
from python_ref import quantize as oracle
from tests.emulation.metal_arguments import LaunchError
from tests.emulation.metal_backend import Bands, emulate, mutated, replace_once, require_clang
from tests.emulation.metal_emulator import ORDERS, KernelFault
from tests.emulation.metal_lint import lint
from tests.guards import bits
from tests.ops.blocks import TINY, values

BARRIER = "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
REDUCTION = "    largest = max(largest, simd_shuffle_xor(largest, ushort(distance)));\n"
KEY = {"seed": 2**63 + 11, "step": 7, "stream": 3, "offset": 2**35 + 5}


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


def equal(results, oracles):
    return all(torch.equal(bits(ours), bits(theirs)) for ours, theirs in zip(results, oracles, strict=True))


def planting(old, new):
    """Return an edit that plants a bug and, to compile faster, leaves the kernels of float alone."""
    others = r"template \[\[host_name\(\"\w+_b?float16\"\)\]\][^;]*;"
    return lambda source: re.sub(others, "", replace_once(source, old, new) if old else source)


def run(monkeypatch, *, old=None, new="", module=launcher, x=None, block_size=1024, rule=KEY, **choices):
    """Run the launcher, with one text of the kernel replaced; return whether results and bands are right."""
    compiler, bands = emulate(monkeypatch, edit=planting(old, new), **choices), Bands()
    x = values(0, 5003) if x is None else x
    expected = oracle.quantize_int8(x, block_size=block_size, **rule)
    out = tuple(bands.empty(result.shape, dtype=result.dtype) for result in expected)
    arguments = rule | {"step": torch.tensor(rule.get("step", 0))}
    module.quantize_int8(bands.copy(x), block_size=block_size, out=out, **arguments)
    assert set(compiler.launches) == {"quantize_int8_float32"}
    return equal(out, expected) and bands.intact()


def launch(module=launcher, x=None, block_size=32):
    """Run a launcher that is expected to be refused."""
    x = torch.ones(64) if x is None else x
    blocks = -(-x.numel() // block_size)
    out = (torch.empty(x.shape, dtype=torch.uint8), torch.empty(blocks), torch.empty(blocks).byte())
    module.quantize_int8(x, block_size=block_size, seed=2**64 - 1, step=torch.tensor(1), out=out)


def test_without_a_bug_all_is_right(monkeypatch):
    assert all(run(monkeypatch, order=order) for order in ORDERS)


@pytest.mark.parametrize("order", ORDERS)
def test_dropped_barrier(monkeypatch, order):
    assert not run(monkeypatch, old=BARRIER, order=order)


WRONG_RESULTS = {
    "wrong lane": (REDUCTION, "    largest = max(largest, simd_shuffle(largest, ushort(1)));\n"),
    "half a reduction": ("distance < run", "2u * distance < run"),
    "partial values of one segment": ("end = begin + share.threads / run", "end = begin + 1u"),
    "missing mask": ("uint(min(count - share.first, ulong(kElements)))", "kElements"),
    "wrong stride": ("+ share.place * kElements", "+ share.place * 7u"),
    "block of the next": ("scales, share.block, grid.scale", "scales, share.block ^ 1ul, grid.scale"),
    "zero point rounded down": ("? ceil(as_type<float>(ratio))", "? floor(as_type<float>(ratio))"),
    "halves of a word swapped": ("(16u * (i & 1u)) & 0xffffu", "(16u * (~i & 1u)) & 0xffffu"),
    "nine rounds": ("round < 10u", "round < 9u"),
    "counter of 32 bits": ("uint(call >> 32), step", "0u, step"),
    "seed of 32 bits": ("uint(seed >> 32))", "0u)"),
    "step for stream": ("step, uint(prm[3]))", "uint(prm[3]), step)"),
    "offset left out": ("ulong(prm[4]) + first", "first"),
    "one call where two are needed": ("(element >> 3) + 1ul", "element >> 3"),
}


@pytest.mark.parametrize("bug", WRONG_RESULTS)
def test_wrong_results(monkeypatch, bug):
    old, new = WRONG_RESULTS[bug]
    assert not run(monkeypatch, old=old, new=new)


def test_ties_of_the_threshold(monkeypatch):
    # With a scale of 1 and fractions of few bits, random numbers meet thresholds exactly.
    x = (values(1, 40_000) * 8).clamp(-127, 127)
    x[::1024], x[1::1024] = -127.0, 127.0
    assert not run(monkeypatch, old="random < frac", new="random <= frac", x=(x * 256).round() / 256)


def test_barrier_that_some_threads_skip(monkeypatch):
    with pytest.raises(KernelFault, match="is not reached by all threads"):
        run(monkeypatch, old=BARRIER, new="  if (share.count == 0u) return largest;\n" + BARRIER)


def test_barrier_in_two_branches(monkeypatch):
    with pytest.raises(KernelFault, match="different barriers"):
        run(monkeypatch, old=BARRIER, new=f"if (share.place < 64u) {{\n{BARRIER} }} else {{\n{BARRIER} }}\n")


def test_simdgroup_operation_in_divergent_flow(monkeypatch):
    with pytest.raises(KernelFault, match="simdgroup operation in divergent control flow"):
        run(monkeypatch, old=REDUCTION, new=f"if ((thread_id & 31u) < 16u) {{ {REDUCTION} }}")


def test_simdgroup_operations_in_two_branches(monkeypatch):
    branches = f"if ((thread_id & 31u) < 16u) {{ {REDUCTION} }} else {{ largest = simd_max(largest); }}"
    with pytest.raises(KernelFault, match="different simdgroup operations"):
        run(monkeypatch, old=REDUCTION, new=branches)


def test_threadgroup_write_out_of_bounds(monkeypatch):
    with pytest.raises(KernelFault, match="a write outside a threadgroup variable"):
        run(monkeypatch, old="partial[thread_id / run] = ", new="partial[thread_id / run + 508u] = ")


def test_index_outside_an_array(monkeypatch):
    with pytest.raises(KernelFault, match="an index outside an array"):
        run(monkeypatch, old="words[i >> 1] >>", new="words[4u + i] >>", x=torch.randn(300))


def test_float_out_of_the_range_of_an_integer(monkeypatch):
    with pytest.raises(KernelFault, match="integer type that cannot hold it"):
        run(
            monkeypatch,
            old="int(floor(y + 0.5f))",
            new="int(floor(y * 1.0e9f))",
            rule={"rounding": "nearest"},
        )


@pytest.mark.parametrize("mode", ["division_high", "division_low"])
def test_trust_in_the_division_of_the_gpu(monkeypatch, mode):
    # One code in 3e5 changes with a reciprocal that is off by one unit; ordinary sizes do not see it.
    new = "(1.0f / scale)"
    assert not run(monkeypatch, old="reciprocal_rounded(scale)", new=new, x=values(2, 2**21), mode=mode)
    old, new = "divide_rounded(below + above, steps)", "(below + above) / float(steps)"
    assert not run(monkeypatch, old=old, new=new, mode=mode)


FUSED_PRODUCTS = {
    "product": ("fma(a, b, minus_zero)", "a * b"),
    "zero that the compiler knows": ("as_type<float>(kSign | uint(number >> 32))", "-0.0f"),
}


@pytest.mark.parametrize("mode", ["exact", "contract", "fast"])
@pytest.mark.parametrize("bug", FUSED_PRODUCTS)
def test_product_that_may_be_fused_with_the_sum_after_it(monkeypatch, bug, mode):
    emulate(monkeypatch, mode=mode, edit=planting(*FUSED_PRODUCTS[bug]))
    x, old = values(1, 3000), oracle.quantize_int8(values(2, 3000))
    key = {"beta": 0.9, "seed": 1, "stream": 2}
    mean, blocks = oracle.ema_int8(old, x, step=3, **key)
    out = torch.empty_like(mean)
    ema8.ema_int8_(*old, x, step=torch.tensor(3), out=out, **key)
    assert equal((out, *old), (mean, *blocks)) == (mode == "exact")


def test_subnormal_input_that_is_kept(monkeypatch):
    x = torch.tensor([0.95 * TINY, 254 * TINY])
    old = "return magnitude(bits) < kHiddenBit ? 0u : bits;"
    rule = {"rounding": "nearest"}
    assert run(monkeypatch, x=x, rule=rule)
    assert not run(monkeypatch, old=old, new="return bits;", x=x, rule=rule)


def test_buffers_swapped_in_the_kernel(monkeypatch):
    scales, zero_points = (
        "device float* scales      [[buffer({})]]",
        "device uchar* zero_points [[buffer({})]]",
    )
    between = ",\n                          "
    old, new = (scales.format(i) + between + zero_points.format(j) for i, j in ((2, 3), (3, 2)))
    emulate(monkeypatch, edit=planting(old, new))
    with pytest.raises(LaunchError, match=r"zero_points, is torch\.float32, the kernel reads uchar"):
        launch()


LAUNCHER_BUGS = {
    "wrong buffer order": (
        launcher,
        "(x.contiguous(), codes)",
        "(codes, x.contiguous())",
        "x, is torch.uint8, the kernel reads float",
    ),
    "missing buffer": (
        launcher,
        "            bound_step(step, x.device),\n",
        "",
        "reads 6 buffers .* 5 are given",
    ),
    "not contiguous": (launcher, "(x.contiguous(), codes)", "(x, codes)", "view size is not compatible"),
    "wrong kernel": (
        launcher,
        '"quantize_int8_{NAMES[x.dtype]}"',
        '"quantize_int8_float16"',
        "is torch.float32, the kernel reads half",
    ),
    "integers as floats": (_blocks, "[count, block_size,", "[float(count), block_size,", "float of 4 bytes"),
    "seed without a sign": (_blocks, "[signed, ", "[self.seed, ", "does not fit into 8 bytes"),
    "step on the host as a float": (
        _blocks,
        "step.to(torch.int64)",
        "step.to(torch.float32)",
        "torch.float32",
    ),
    "group too large": (
        _blocks,
        "group_size=group_size",
        "group_size=1024",
        "has 1024 threads, .* allows 512",
    ),
    "group of another rank": (
        _blocks,
        "group_size=group_size",
        "group_size=(32, 1)",
        "need the same rank",
    ),
}


def planted(monkeypatch, module, old, new):
    """Return the launcher of quantize_int8 with a bug in its own source or in that of the launches."""
    copy = mutated(module, old, new)
    if module is launcher:
        return copy
    for name in ("launch_over_blocks", "bound_step", "RandomStream"):
        monkeypatch.setattr(launcher, name, getattr(copy, name))
    return launcher


@pytest.mark.parametrize("bug", LAUNCHER_BUGS)
def test_launcher_bug(monkeypatch, bug):
    module, old, new, message = LAUNCHER_BUGS[bug]
    emulate(monkeypatch)
    with pytest.raises(RuntimeError, match=message):
        launch(planted(monkeypatch, module, old, new), torch.ones(4, 64).T)


WRONG_LAUNCHES = {
    "wrong number of threads": ("blocks_a_group) * group_size", "blocks_a_group) * threads_a_block"),
    "offset that stays": ("self.offset + start", "self.offset"),
    "pieces of the first blocks": ("tensor[first:end]", "tensor[: end - first]"),
}


@pytest.mark.parametrize("bug", WRONG_LAUNCHES)
def test_wrong_launch(monkeypatch, bug):
    planted(monkeypatch, _blocks, *WRONG_LAUNCHES[bug])
    monkeypatch.setitem(launcher.launch_over_blocks.__globals__, "_ELEMENTS_PER_LAUNCH", 4096)
    assert not run(monkeypatch, block_size=64)


def test_int64_read_as_uint(monkeypatch):
    emulate(monkeypatch, edit=lambda source: source.replace("constant long* prm", "constant uint* prm"))
    with pytest.raises(LaunchError, match="bound as int of 8 bytes, the kernel reads uint"):
        launch()


FIRST = "  const uint2 range = block_max("
COMPILER_BUGS = {
    "lost address space": ("device const T* x  ", "const T* x  ", "needs an attribute, or a device"),
    "other address space": (
        FIRST,
        "  device uint2* p = partial;\n" + FIRST,
        "cannot initialize a variable of type 'device uint2",
    ),
    "write to a const buffer": (FIRST, "  x[0] = T(0.0f);\n" + FIRST, "is not assignable"),
    "double literal": ("fma(a, b, minus_zero)", "fma(a, b, 0.0)", "'float' to 'double'"),
    "implicit rounding": (FIRST, "  half h = as_type<float>(bits[0]);\n" + FIRST, "loses floating-point"),
    "C++17": (
        "if (skipped == 0u)",
        "if constexpr (kMantissa > 0u)",
        "constexpr if is incompatible",
    ),
    "64-bit simdgroup function": (
        FIRST,
        "  const ulong wide = simd_max(ulong(bits[0]));\n" + FIRST,
        "take no 64-bit type and no bfloat",
    ),
    "threadgroup memory": (
        "threadgroup uint2 partial[kMaxThreads];",
        "threadgroup uint2 partial[4097];",
        "needs 32784 bytes of threadgroup memory",
    ),
    "two threadgroup variables": (
        "threadgroup uint2 partial[kMaxThreads];",
        "threadgroup uint2 partial[kMaxThreads], more[8];",
        "one threadgroup variable a",
    ),
}


@pytest.mark.parametrize("bug", COMPILER_BUGS)
def test_source_that_apple_rejects(monkeypatch, bug):
    old, new, message = COMPILER_BUGS[bug]
    emulate(monkeypatch, edit=planting(old, new))
    with pytest.raises((SyntaxError, RuntimeError), match=message):
        launch(block_size=1024)


LINT_BUGS = {
    "fp-pragmas": ("exact", "#pragma METAL fp contract(off)\n", ""),
    "wide-index": (
        "quantize_int8",
        "const Share share = share_of(prm, group, thread_id, group_threads);\n  const float",
        "const ulong first = group * 8u;\n  const float",
    ),
    "nan-by-bits": ("affine", "!finite ||", "isinf(below + above) ||"),
    "thread-limit": ("stochastic_round", "  uint bits[kElements];", f"  uint bits[kElements];\n{BARRIER}"),
    "buffer-index": ("adam8", "[[buffer(2)]]", "[[buffer(1)]]"),
    "barrier-memory": (
        "quantize_int8",
        "  load(x, share, bits);",
        "  threadgroup_barrier(mem_flags::mem_none);",
    ),
    "simd-divergence": (
        "quantize_int8",
        "  load(x, share, bits);",
        "  if (thread_id < 16u) bits[0] = simd_max(bits[0]);",
    ),
    "address-space": ("dynamic", "device const uint* buckets, float size", "const uint* buckets, float size"),
    "wide-scalars": ("stochastic_round", "constant long* step", "constant uint* step"),
    "float-literal": ("affine", "y + 0.5f", "y + 0.5"),
}


@pytest.mark.parametrize("rule", LINT_BUGS)
def test_bug_that_the_lint_sees(rule):
    name, old, new = LINT_BUGS[rule]
    text = replace_once((_shader._DIRECTORY / f"{name}.metal").read_text(), old, new)
    assert rule in [finding.rule for finding in lint(text)]
