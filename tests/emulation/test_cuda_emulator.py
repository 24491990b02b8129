"""The execution model of the CUDA emulation: indices, barriers, warps, atomics, and the bugs it reports."""

import numpy as np
import pytest
import torch

from tests.emulation import address_sanitizer, cuda_emulator
from tests.emulation.tools import require_tool

FULL = 0xFFFFFFFF

SOURCE = cuda_emulator.HEADERS / "execution_kernels.cuh"

INSTANTIATIONS = [
    *"""
    coordinates reverse_dynamic read_uninitialized barrier_votes votes racy_neighbour barrier_for_some
    barrier_in_both_branches shuffle_for_some shuffle_beside_barrier unequal_masks load_vector
    index_past_end dynamic_past_end deep_stack scalars
    """.split(),
    *(f"reverse_static<{name}>" for name in ("float", "__half")),
    *(f"shuffles<{name}>" for name in ("int", "double", "__nv_bfloat16")),
    *(f"atomics<{name}>" for name in ("int", "unsigned", "float", "u64")),
]


@pytest.fixture(scope="module")
def kernels(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())
    return cuda_emulator.compile(SOURCE, INSTANTIATIONS)


@pytest.fixture(params=cuda_emulator.ORDERS)
def order(request):
    return request.param


def test_every_thread_of_a_3d_grid_knows_its_place(kernels, order):
    grid, block = (3, 2, 2), (4, 3, 5)
    out = np.full((*grid[::-1], *block[::-1], 6), -1, np.int32)
    kernels["coordinates"](out, grid=grid, block=block, order=order)
    expected = np.stack(np.indices(out.shape[:-1])[[2, 1, 0, 5, 4, 3]], axis=-1)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    "name, dtype", [("reverse_static<float>", "float32"), ("reverse_static<__half>", "float16")]
)
def test_static_shared_memory_is_seen_after_a_barrier(kernels, order, name, dtype):
    data = np.arange(64, dtype=dtype)
    kernels[name](data, grid=1, block=64, order=order)
    np.testing.assert_array_equal(data, np.arange(64)[::-1])


def test_dynamic_shared_memory_has_the_size_of_the_launch(kernels, order):
    data = torch.arange(96, dtype=torch.float32)
    kernels["reverse_dynamic"](data, 96, grid=1, block=96, shared=96 * 4, order=order)
    assert torch.equal(data, torch.arange(95, -1, -1, dtype=torch.float32))


def test_shared_memory_is_poisoned_for_every_block(kernels):
    out = np.zeros(3 * 64, np.uint32)
    kernels["read_uninitialized"](out, grid=3, block=32, shared=128)
    assert (out == FULL).all()


@pytest.mark.parametrize("true_lanes", [0, 1, 95, 96])
def test_barrier_votes(kernels, order, true_lanes):
    flags = np.zeros(96, np.int32)
    flags[:true_lanes] = 7
    out = np.empty((96, 3), np.int32)
    kernels["barrier_votes"](flags, out, grid=1, block=96, order=order)
    assert (out == [true_lanes, true_lanes == 96, true_lanes > 0]).all()


@pytest.mark.parametrize("width", [32, 16, 4])
@pytest.mark.parametrize("operand", [0, 1, 3, 8, 16, 31])
@pytest.mark.parametrize(
    "dtype, name", [("int32", "int"), ("float64", "double"), ("uint16", "__nv_bfloat16")]
)
def test_shuffles_read_the_lane_they_name(kernels, width, operand, dtype, name):
    values = np.arange(100, 132).astype(dtype)
    out = np.empty(128, dtype)
    kernels[f"shuffles<{name}>"](
        values, out, operand, width, grid=1, block=32, order="shuffled", seed=operand
    )
    lane = np.arange(32)
    first, last = lane // width * width, lane // width * width + width - 1
    np.testing.assert_array_equal(out[:32], values[first + operand % width])
    for quarter, source in ((1, lane - operand), (2, lane + operand), (3, lane ^ operand)):
        inside = source >= first if quarter == 1 else source <= last
        np.testing.assert_array_equal(out[32 * quarter :][:32], values[np.where(inside, source, lane)])


@pytest.mark.parametrize("mask", [FULL, 0xFFFF0000, 0x00010004, 0x80000000])
def test_votes_and_reductions_cover_the_mask(kernels, order, mask):
    values = np.random.default_rng(mask).integers(-3, 4, 32).astype(np.int32)
    out = np.zeros((32, 12), np.uint32)
    kernels["votes"](values, out, mask, grid=1, block=32, order=order)
    lanes = [lane for lane in range(32) if mask >> lane & 1]
    inside, bits = values[lanes], values[lanes].view(np.uint32)
    ballot = sum(1 << lane for lane in lanes if values[lane])
    for lane in lanes:
        match = sum(1 << other for other in lanes if values[other] == values[lane])
        signed = np.array([inside.sum(), inside.min(), inside.max()], np.int32).view(np.uint32)
        bitwise = [f.reduce(bits) for f in (np.bitwise_and, np.bitwise_or, np.bitwise_xor)]
        votes = [ballot, ballot != 0, ballot == mask, match]
        np.testing.assert_array_equal(out[lane], [*votes, *signed, bits.min(), bits.max(), *bitwise])


@pytest.mark.parametrize(
    "dtype, name",
    [("int32", "int"), ("uint32", "unsigned"), ("uint64", "u64"), ("float32", "float")],
)
def test_atomics(kernels, order, dtype, name):
    values = np.arange(10, 10 + 2 * 96).astype(dtype)
    out = np.array([0, 10**6, 0, 5, 77, 0], dtype)
    kernels[f"atomics<{name}>"](values, out, grid=2, block=96, order=order)
    expected = [values.sum(), 10**6, 0, 5, 10, 77]
    if dtype != "float32":
        expected[1:4] = values.min(), values.max(), 5 + values.sum()
    np.testing.assert_array_equal(out, np.array(expected, dtype))


def test_arguments_arrive_by_value_and_null_is_none(kernels):
    out = np.empty(5)
    pair = np.array((-7, 2.5), dtype=[("low", "i4"), ("high", "f4")])
    kernels["scalars"](pair, True, 2**40, None, out, grid=1, block=1)
    assert out.tolist() == [-7, 2.5, 1, 2**40, 1]
    assert kernels["scalars"].parameters == ("struct8", "bool", "int64", "const void*", "float64*")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((np.zeros(4, np.float64), 4), r"argument 0 .*float32\* does not take elements of float64"),
        ((np.zeros(4, np.float32), 2**31), "argument 1 .*int32 does not hold 2147483648"),
        ((np.zeros(4, np.float32), 0.5), "argument 1 .*int32 does not hold 0.5"),
        ((3, 4), "argument 0 .*takes an array, a tensor or None, not int"),
        ((np.zeros(4, np.float32),), "takes 2 arguments, not 1"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(kernels, arguments, message):
    with pytest.raises(TypeError, match=message):
        kernels["reverse_dynamic"](*arguments, grid=1, block=4, shared=16)


def test_a_missing_barrier_shows_in_some_order(kernels):
    values = np.arange(256, dtype=np.float32)
    wrong = {}
    for order in cuda_emulator.ORDERS:
        out = np.empty(256, np.float32)
        kernels["racy_neighbour"](values, out, grid=1, block=256, order=order)
        wrong[order] = int((out != values[np.arange(256) ^ 1]).sum())
    assert wrong["forward"] == wrong["reversed"] == 128
    assert wrong["shuffled"] > 0


@pytest.mark.parametrize(
    "name, arguments, block, error, message",
    [
        (
            "barrier_for_some",
            (33,),
            64,
            "DivergentBarrier",
            r"__syncthreads \(execution_kernels.cuh:\d+\) .*all 64 .*exited",
        ),
        (
            "barrier_in_both_branches",
            (),
            64,
            "DivergentBarrier",
            r"waits at __syncthreads \(execution_kernels.cuh:\d+\)",
        ),
        (
            "shuffle_for_some",
            (np.zeros(32, "i4"), 31, FULL),
            32,
            "MissingLanes",
            "lane 31 of its mask.*has exited",
        ),
        (
            "shuffle_for_some",
            (np.zeros(32, "i4"), 16, FULL),
            16,
            "MissingLanes",
            "lane 16 .*not part of the block",
        ),
        (
            "shuffle_for_some",
            (np.zeros(32, "i4"), 32, 0xFFFF),
            32,
            "MissingLanes",
            "lane 16, which its own mask",
        ),
        (
            "shuffle_for_some",
            (np.zeros(32, "i4"), 1, 0x1),
            32,
            "MissingLanes",
            "reads lane 1, which is not in",
        ),
        (
            "shuffle_beside_barrier",
            (np.zeros(64, "i4"),),
            64,
            "MissingLanes",
            "lane 5 .*waits at __syncthreads",
        ),
        ("unequal_masks", (np.zeros(32, "i4"),), 32, "MissingLanes", "lane 16 of its mask, which has exited"),
        (
            "load_vector",
            (np.zeros(9, "f4")[1:], np.zeros(1, "f4")),
            1,
            "MisalignedAccess",
            "float4.* modulo 16",
        ),
        ("index_past_end", (np.zeros(1, "i4"), 32), 1, "OutOfBounds", r"index 32 of 'int \[32\]'"),
        ("dynamic_past_end", (64,), 1, "OutOfBounds", "wrote behind its 64 bytes of dynamic shared memory"),
        ("coordinates", (np.zeros(1, "i4"),), 1025, "BadLaunch", "1 to 1024 threads"),
    ],
)
@pytest.mark.parametrize("order", cuda_emulator.ORDERS)
def test_bugs_are_reported(kernels, name, arguments, block, error, message, order):
    if name == "dynamic_past_end" and address_sanitizer.loaded():
        pytest.skip("AddressSanitizer ends the process instead")
    expected = getattr(cuda_emulator, error)
    # In other orders another thread may be the first to be found.
    with pytest.raises(expected, match=message if order == "forward" else None):
        kernels[name](*arguments, grid=1, block=block, shared=64, order=order)
    out = np.empty(1, np.float32)
    aligned = np.arange(8, dtype=np.float32)[:4]
    kernels["load_vector"](aligned, out, grid=1, block=1)
    assert out == 3, "a launch after a failed one must be unaffected"


def test_a_local_array_larger_than_the_stack_is_reported(kernels):
    with pytest.raises(cuda_emulator.OutOfBounds, match="emulated stack of 131072 bytes"):
        kernels["deep_stack"](np.zeros(1, np.int32), grid=1, block=2)


def test_source_that_does_not_compile_shows_the_compilers_words(kernels):
    broken = "#include <cuda_runtime.h>\n__global__ void broken(int* x) { *x = undeclared_name; }"
    with pytest.raises(RuntimeError, match=r"source.cuh:2.*undeclared_name"):
        cuda_emulator.compile(broken, ["broken"])


def test_a_module_is_compiled_once(kernels, monkeypatch):
    monkeypatch.setattr(cuda_emulator, "_build", lambda *_: pytest.fail("compiled again"))
    again = cuda_emulator.compile(SOURCE, INSTANTIATIONS)
    assert again["coordinates"].parameters == ("int32*",)


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert not cuda_emulator.available()
    with pytest.raises(cuda_emulator.ToolMissing, match=r"g\+\+|x86-64"):
        cuda_emulator.compile(SOURCE, INSTANTIATIONS)
