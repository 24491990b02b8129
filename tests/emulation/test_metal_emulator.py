from pathlib import Path

import numpy as np
import pytest
import torch

from tests.emulation.metal_arguments import LaunchError
from tests.emulation.metal_backend import require_clang
from tests.emulation.metal_emulator import ORDERS, KernelFault, compile_shader
from tests.emulation.metal_modes import MODES, replace_divisions

SOURCE = (Path(__file__).parent / "primitives.metal").read_text()
INACTIVE = -1  # what a lane reads from one that is not there


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


@pytest.fixture(params=ORDERS)
def library(request):
    return compile_shader(SOURCE, order=request.param)


def integers(size, low=-1000, high=1000):
    return torch.randint(low, high, (size,), generator=torch.Generator().manual_seed(0), dtype=torch.int32)


def rows(size, dtype=torch.int32, columns=8):
    return torch.full((size, columns), 77, dtype=dtype)


def same_bits(got, want):
    """Compare bits; want is a numpy array of the dtype of got."""
    want = torch.from_numpy(np.ascontiguousarray(want))
    return torch.equal(got.contiguous().view(torch.uint8), want.view(torch.uint8))


def test_positions_and_groups_at_the_edges(library):
    grid, group = (10, 7, 3), (8, 3, 2)
    out = torch.zeros((3, 7, 10, 16), dtype=torch.int32)
    library.positions(out, threads=grid, group_size=group)
    z, y, x = np.meshgrid(*map(np.arange, (3, 7, 10)), indexing="ij")
    local = x % 8, y % 3, z % 2
    size = np.where(x < 8, 8, 2), np.where(y < 6, 3, 1), np.where(z < 2, 2, 1)
    index = (local[2] * size[1] + local[1]) * size[0] + local[0]
    count = size[0] * size[1] * size[2]
    want = [
        *(x, y, z), *local, *(x // 8, y // 3, z // 2),
        size[0] * 10000 + size[1] * 100 + size[2], np.full_like(x, 2 * 10000 + 3 * 100 + 2),
        index, index % 32, index // 32, -(-count // 32), np.full_like(x, 32),
    ]  # fmt: skip
    assert same_bits(out, np.stack(want, axis=-1).astype(np.int32))


def test_reductions_over_active_lanes(library):
    x = integers(70)
    out = rows(70)
    library.reductions(x, out, group_size=64)
    want = []
    for lanes in (x[:32], x[32:64], x[64:]):
        v = lanes.numpy()
        prefix = np.cumsum(v)
        fixed = [
            v.sum(),
            v.min(),
            v.max(),
            np.bitwise_and.reduce(v),
            np.bitwise_or.reduce(v),
            np.bitwise_xor.reduce(v),
        ]
        want += [[*fixed, prefix[lane], prefix[lane] - v[lane]] for lane in range(len(v))]
    assert same_bits(out, np.array(want, dtype=np.int32))


def test_shuffles(library):
    x = integers(42)
    out = rows(42)
    library.shuffles(x, out, group_size=64)
    want = []
    for v in (x[:32].tolist(), x[32:].tolist()):
        read = dict(enumerate(v))
        for lane in range(len(v)):
            up = v[lane - 3] if lane >= 3 else v[lane]
            down = read.get(lane + 3, INACTIVE) if lane + 3 < 32 else v[lane]
            sources = (lane ^ 9, (lane - 3) % 32, (lane + 3) % 32)
            want.append([read[5], up, down, *(read.get(s, INACTIVE) for s in sources), read[2], read[0]])
    assert same_bits(out, np.array(want, dtype=np.int32))


def test_votes_of_the_lanes_that_have_not_returned(library):
    x = integers(32, -20, 40)
    x[0] = -1
    out = rows(32)
    library.votes(x, out, group_size=32)
    active = [lane for lane in range(32) if x[lane] >= 0]
    assert 0 < len(active) < 32
    ballot = sum(1 << lane for lane in active if x[lane] > 10)
    mask = sum(1 << lane for lane in active)
    total = sum(x[lane].item() for lane in active)
    for lane in range(32):
        want = [ballot, mask, ballot != 0, ballot == mask, lane == active[0], total, INACTIVE, 77]
        got = out[lane].tolist()
        if lane in active:
            assert [value & 0xFFFFFFFF for value in got] == [int(value) & 0xFFFFFFFF for value in want]
        else:
            assert got == [77] * 8


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16)],
    ids=["f32", "f16", "bf16"],
)
def test_each_operation_rounds_to_the_type(name, dtype):
    library = compile_shader(SOURCE)
    generator = torch.Generator().manual_seed(0)
    a, b = (2 * torch.randn((2, 5000), generator=generator)).to(dtype)
    out = rows(5000, dtype)
    getattr(library, f"arithmetic_{name}")(a, b, out)
    want = [a + b, a * b, a * b + a, a.floor(), torch.maximum(a, b), a.clamp(-1, 1), -b.abs(), a.round()]
    assert torch.equal(out, torch.stack(want, dim=1))


@pytest.mark.parametrize(("mode", "ulp"), [("exact", 0), ("division_high", 1), ("division_low", -1)])
def test_divisions_are_off_by_the_units_of_the_mode(mode, ulp):
    library = compile_shader(SOURCE, mode=mode)
    x = 1 + torch.rand(1000, generator=torch.Generator().manual_seed(0))
    out = rows(1000, torch.float32)
    library.functions(x, out)
    v, f = x.numpy(), np.float32
    correct = np.stack([v / f(3), np.sqrt(v), np.sqrt(v), v / f(3), v, f(1) / v, v / f(7)], axis=1)
    error = out[:, :7].numpy().view(np.int32) - correct.view(np.int32)
    fused = (v.astype(np.float64) ** 2 - 1).astype(f)
    assert same_bits(out[:, 4], fused) and same_bits(out[:, 7], np.tile([f(1), f(2), f(4)], 334)[:1000])
    for column, expected in ((0, ulp), (1, ulp), (2, 0), (3, 0), (5, ulp), (6, ulp)):
        assert set(error[:, column]) == {expected}, column


def test_modes_flush_and_contract():
    tiny = torch.tensor([2.0**-130, 2.0**-140])
    error = torch.tensor([1 + 2.0**-12, -(1 + 2.0**-11)])
    flushed, contracted = {}, {}
    source = """#include <metal_stdlib>
    using namespace metal;
    kernel void f(device const float* x, device float* out) { out[0] = x[0] + x[1]; }
    kernel void g(device const float* x, device float* out) { out[0] = x[0] * x[0] + x[1]; }"""
    for mode in MODES:
        library, out = compile_shader(source, mode=mode), torch.full((1,), torch.nan)
        library.f(tiny, out, threads=1)
        flushed[mode] = out.item() == 0
        library.g(error, out, threads=1)
        contracted[mode] = out.item() != 0
    assert [mode for mode in MODES if flushed[mode]] == ["flush"]
    assert [mode for mode in MODES if contracted[mode]] == ["contract", "fast"]
    assert (tiny + tiny)[0] != 0, "the mode must not leak into the process"


def test_integer_functions(library):
    x = torch.cat([integers(500, -(2**31), 2**31 - 1), torch.tensor([0, 1, -1], dtype=torch.int32)])
    out = rows(503)
    library.integers(x, out)
    want = []
    for value in (int(v) & 0xFFFFFFFF for v in x):
        bits = f"{value:032b}"
        trailing = 32 if value == 0 else len(bits) - len(bits.rstrip("0"))
        rotated = (value << 5 | value >> 27) & 0xFFFFFFFF
        want.append(
            [
                *(value * 0x9E3779B9 >> 32, bits.count("1"), 32 - value.bit_length(), trailing),
                *(int(bits[::-1], 2), rotated, value, value >> 4 & 0x1FF),
            ]
        )
    # The host may quiet a signalling NaN that passes through a float.
    number = (x.view(torch.float32) == x.view(torch.float32)).numpy()
    got = out.numpy().view(np.uint32)
    assert np.array_equal(got[number], np.array(want, dtype=np.uint32)[number])


def test_vectors_and_swizzles(library):
    x = torch.randn((9, 4), generator=torch.Generator().manual_seed(0))
    out = torch.empty_like(x)
    library.vectors(x, out, [2.0, 3.0], threads=9)
    want = torch.stack(
        [3 * x[:, 1], 2 * x[:, 0], torch.ones(9), ((x[:, 0] + x[:, 1]) + x[:, 2]) + x[:, 3]], dim=1
    )
    assert torch.equal(out, want + (x < 0))


def test_atomics(library):
    total, largest, claimed = (torch.zeros(1, dtype=torch.int32) for _ in range(3))
    total_of_floats = torch.zeros(1)
    library.counters(total, largest, total_of_floats, claimed, threads=100, group_size=48)
    assert (total.item(), largest.item(), total_of_floats.item()) == (100, 99, 50.0)
    assert 1 <= claimed.item() <= 100


@pytest.mark.parametrize(
    ("name", "dtype"), [("f32", torch.float32), ("f16", torch.float16)], ids=["f32", "f16"]
)
def test_simdgroup_matrix(library, name, dtype):
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(-8, 9, (12, 11), generator=generator).to(dtype)
    b = torch.randint(-8, 9, (8, 8), generator=generator).to(dtype)
    out = torch.full((8, 8), torch.nan)
    getattr(library, f"product8_{name}")(a, b, out, [11], threads=32, group_size=32)
    assert torch.equal(out, 2 * (a[2:10, 1:9].float() @ b.float().T + 1))


def test_simdgroup_matrix_needs_all_lanes(library):
    a = torch.zeros(12, 11)
    with pytest.raises(KernelFault, match="inactive lanes"):
        library.product8_f32(a, a[:8, :8].contiguous(), torch.zeros(8, 8), [11], threads=20, group_size=32)


def test_threadgroup_memory_is_poisoned_for_each_group(library):
    out = torch.zeros(96, dtype=torch.int32)
    library.unwritten(out, group_size=32)
    assert out.tolist() == [-1] * 96


def test_scalars_bind_as_torch_binds_them(library):
    out = torch.zeros(6)
    library.scalars(
        out, 1.5, 2, 3, 4.25, True, [0.0, 6.5], threads=1, arg_casts={3: "int32", 4: "fp16", 5: "uint8"}
    )
    assert out.tolist() == [1.5, 2.0, 3.0, 4.25, 1.0, 6.5]


def test_tensors_bind_with_their_offset():
    library = compile_shader(SOURCE)
    storage = torch.full((10,), 5, dtype=torch.int32)
    library.unwritten(storage[4:7], group_size=3)
    assert storage.tolist() == [5] * 4 + [-1] * 3 + [5] * 3


def test_properties():
    library = compile_shader(SOURCE)
    assert "limited" in dir(library)
    assert library.limited.max_threads_per_threadgroup == 64
    assert library.limited.thread_execution_width == 32
    assert library.limited.static_thread_group_memory_length == 400
    assert library.positions.max_threads_per_threadgroup == 1024
    assert library.launches == []


OUT = torch.zeros(64)
BAD_LAUNCHES = {
    "too few": (lambda lib: lib.limited(), "reads 1 buffers"),
    "None": (lambda lib: lib.limited(None), "is a NoneType"),
    "numpy scalar": (lambda lib: lib.scalars(OUT, np.float64(1), 2, 3, 4.0, 5, [0.0]), "is a float64"),
    "int uncast": (
        lambda lib: lib.scalars(OUT, 1.0, 2, 3, 4.0, 5, [0.0]),
        "int of 8 bytes, the kernel reads int",
    ),
    "unknown cast": (
        lambda lib: lib.scalars(OUT, 1.0, 2, 3, 4.0, 5, [0.0], arg_casts="fp8"),
        "the casts are",
    ),
    "empty list": (
        lambda lib: lib.vectors(torch.zeros(4, 4), torch.zeros(4, 4), []),
        "at least one int or float",
    ),
    "short list": (lambda lib: lib.vectors(torch.zeros(4, 4), torch.zeros(4, 4), [1.0]), "has 1 values"),
    "scalar for device": (lambda lib: lib.limited(1.0), "declared device"),
    "misaligned": (
        lambda lib: lib.vectors(torch.zeros(17)[1:], torch.zeros(16), [1.0, 1.0]),
        "not aligned to the 16",
    ),
    "dtype": (lambda lib: lib.limited(OUT.double()), "is torch.float64, the kernel reads float"),
    "strides": (lambda lib: lib.limited(OUT[::2]), "is not contiguous"),
    "group": (lambda lib: lib.limited(OUT, group_size=65), "allows 64"),
    "rank": (lambda lib: lib.limited(OUT, threads=(8, 8), group_size=8), "need the same rank"),
    "no threads": (lambda lib: lib.limited(OUT, threads=0), "must be positive"),
}


@pytest.mark.parametrize("case", BAD_LAUNCHES)
def test_rejects_launch(case):
    call, message = BAD_LAUNCHES[case]
    library = compile_shader(SOURCE)
    with pytest.raises(LaunchError, match=message):
        call(library)
    assert library.launches == []


def test_rejects_source_and_options():
    with pytest.raises(RuntimeError, match="has no kernel nothing"):
        _ = compile_shader(SOURCE).nothing
    with pytest.raises(SyntaxError, match="not ASCII"):
        compile_shader("// caf\u00e9")
    with pytest.raises(SyntaxError, match=r"shader\.metal:3:"):
        compile_shader("#include <metal_stdlib>\n\nkernel void f(device float* x) { y = 1; }")
    with pytest.raises(SyntaxError, match="cannot be served by compile_shader"):
        compile_shader("kernel void f(threadgroup float* x [[threadgroup(0)]]) { }")
    with pytest.raises(ValueError, match="mode must be one of exact"):
        compile_shader(SOURCE, mode="wrong")
    with pytest.raises(ValueError, match="order must be one of forward"):
        compile_shader(SOURCE, order="wrong")


UNDEFINED = {
    "shift by the width": ("out[0] = 1u << uint(prm[0]);", 32, "a shift by the width"),
    "division by zero": ("out[0] = uint(1 / int(prm[0]));", 0, "division by zero"),
    "signed overflow": ("out[0] = uint(int(prm[0]) + 1);", 2**31 - 1, "a signed addition overflows"),
    "array index": ("uint a[4] = {}; a[prm[0]] = 1u; out[0] = a[0];", 4, "an index outside an array"),
}


@pytest.mark.parametrize("case", UNDEFINED)
def test_undefined_results_are_reported(case):
    body, value, message = UNDEFINED[case]
    library = compile_shader(
        f"#include <metal_stdlib>\nkernel void f(device uint* out, constant long* prm) {{ {body} }}"
    )
    out = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(KernelFault, match=message):
        library.f(out, [value], threads=1)
    library.f(out, [3], threads=1)


def test_divisions_in_llvm_ir_are_replaced():
    ir = """
  %3 = fdiv float %1, 2.000000e+00
  %4 = fdiv contract <2 x float> %a, <float 1.0, float 2.0>, !tag !1
  %5 = fdiv double %1, %2
"""
    replaced = replace_divisions(ir)
    assert replaced.count("call float @emulation_divide") == 3
    assert replaced.count("fdiv") == 1
    assert "%4 = insertelement <2 x float>" in replaced
