"""Bugs planted in the CUDA sources: each test passes because the harness catches its bug."""

import subprocess
import sys

import pytest
import torch

from python_ref import quantize as oracle
from tests.emulation import address_sanitizer, cuda_emulator
from tests.emulation.cuda_backend import emulated, operator, run
from tests.emulation.guard_bands import GuardBandError, GuardBands
from tests.emulation.tools import require_tool
from tests.ops.blocks import values

KEY = {"seed": 5, "step": 6, "stream": 7}


@pytest.fixture(autouse=True)
def compiler(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())


def quantize(numel, block_size, order="forward", *, offset=0, **edits):
    """Quantize on edited sources between guard bands, and tell whether the oracle's bits came out."""
    x, key = values(3, numel), {"block_size": block_size, "offset": offset, **KEY}
    files = {name.replace("__", "."): tuple(replacements) for name, replacements in edits.items()}
    with emulated(order, seed=numel, edits=files):
        results = run("quantize_int8", x, **key)
    return all(map(torch.equal, results, oracle.quantize_int8(x, **key)))


@pytest.mark.parametrize("order", cuda_emulator.ORDERS)
def test_the_unchanged_sources_have_none(order):
    for numel, block_size in ((9000, 256), (9000, 2048), (9000, 64), (9001, 264)):
        assert quantize(numel, block_size, order)


BARRIER = "  if (threadIdx.x % WARP == 0) warp_max[threadIdx.x / WARP] = value;\n  __syncthreads();\n"
WARP_MAX = "__shared__ uint32_t warp_max[WARPS];"


def test_a_dropped_barrier_gives_wrong_results_in_some_order():
    edit = [(BARRIER, BARRIER.replace("  __syncthreads();\n", ""))]
    assert not all(quantize(9000, 2048, order, tile__cuh=edit) for order in cuda_emulator.ORDERS)


def test_a_barrier_in_divergent_code_is_reported():
    divergent = BARRIER.replace("== 0) warp_max", "== 0) { warp_max").rstrip() + " }\n"
    with pytest.raises(RuntimeError, match="not reached by all 128 threads"):
        quantize(9000, 2048, tile__cuh=[(BARRIER, divergent)])


def test_shared_memory_that_is_too_small_is_reported():
    with pytest.raises(RuntimeError, match=r"index 2 of .*\[2\]"):
        quantize(9000, 2048, tile__cuh=[(WARP_MAX, WARP_MAX.replace("WARPS", "WARPS / 2"))])


REDUCTION = "for (int offset = tiling_.lanes / 2; offset > 0; offset /= 2)"
WHOLE = "return tiling_.aligned && (number_ + 1) * tiling_.size <= tiling_.count;"


def test_a_wrong_lane_gives_wrong_results():
    assert not quantize(9000, 64, tile__cuh=[(REDUCTION, REDUCTION.replace("> 0", "> 1"))])


def test_a_shuffle_that_lanes_skip_is_reported():
    edit = ("  tile.max_over_blocks(hi);\n", "  if (tile.holds(0, 0)) tile.max_over_blocks(hi);\n")
    with pytest.raises(RuntimeError, match=r"__shfl_xor_sync"):
        quantize(9000, 64, affine__cuh=[edit])


def test_a_missing_mask_writes_into_a_guard_band():
    edit = (
        "if (tile.holds(row, i)) memory[tile.first(row) + i] = static_cast",
        "memory[tile.first(row) + i] = static_cast",
    )
    with pytest.raises(AssertionError, match=r"out: .* elements outside the tensor were written"):
        quantize(9000, 64, elements__cuh=[edit])


def test_a_missing_mask_reads_nan_from_a_guard_band():
    masked = "tile.holds(row, i) ? widen(x[tile.first(row) + i]) : 0.0f"
    assert not quantize(9000, 64, elements__cuh=[(masked, "widen(x[tile.first(row) + i])")])


def test_a_misaligned_vector_access_is_reported():
    x = values(1, 3001)[1:]
    with emulated(edits={"tile.cuh": ((WHOLE, WHOLE.replace("tiling_.aligned && ", "")),)}):
        with pytest.raises(RuntimeError, match="4 modulo 16"):
            operator("quantize_int8")(x, block_size=64)


def test_a_group_between_two_calls_needs_both():
    edit = ("if (skipped == 0) return begin;", "return begin;\n    (void)skipped;")
    assert quantize(4000, 64, random16__cuh=[edit])
    assert not quantize(4000, 64, offset=3, random16__cuh=[edit])


def test_a_fused_product_gives_wrong_results():
    fraction = "const float fraction = __fadd_rn(y, -__fadd_rn(shifted, -FLOOR_SHIFT));"
    exact = "const float fraction = __fadd_rd(y, -__fadd_rn(shifted, -FLOOR_SHIFT));"
    # The fraction of a tiny negative value rounds to 1, which decides.
    x = torch.cat([torch.tensor([-2.0, 2.0]), torch.full((254,), -1e-9)]).repeat(300)
    with emulated(edits={"affine.cuh": ((fraction, exact),)}):
        codes = run("quantize_int8", x, **KEY)[0]
    expected = oracle.quantize_int8(x, **KEY).codes
    assert (codes != expected).any()


def test_arguments_in_the_wrong_order_give_wrong_results():
    edit = ("launch(kernel, tiling.grid(), THREADS, stream, x, out, tiling, rule, source);",
            "launch(kernel, tiling.grid(), THREADS, stream, x, "
            "AffineCodes{out.zero_points, out.scales, out.codes}, tiling, rule, source);")  # fmt: skip
    with pytest.raises(AssertionError):
        assert quantize(3000, 64, quantize_int8__cu=[edit])


def test_guard_bands_notice_a_byte_on_either_side():
    for at, side in ((-1, "before"), (12, "behind")):
        bands = GuardBands()
        array = bands.poisoned("codes", 12, "uint8")
        bands.check()
        with pytest.raises(GuardBandError, match=f"1 bytes {side} the array 'codes'"):
            _byte_at(array, at)
            bands.check()


def _byte_at(array, offset):
    import ctypes

    ctypes.c_uint8.from_address(array.ctypes.data + offset).value = 0


OVERFLOW = """
import torch
from tests.emulation import address_sanitizer
from tests.emulation.cuda_backend import emulated, operator

assert address_sanitizer.loaded()
x = torch.ones(4000)
out = torch.empty(4000, dtype=torch.uint8), torch.empty(63), torch.empty(63, dtype=torch.uint8)
with emulated(edits={edits}) as cuda:
    operator("quantize_int8")(x, block_size=64, rounding="nearest", out=out)
assert (out[0] == 254).all()
print("finished")
"""


@pytest.mark.parametrize("planted", [False, True])
def test_address_sanitizer_stops_a_heap_overflow(planted):
    """No guard band here: the arrays end where their allocations end."""
    masked = "if (tile.holds(row, i)) memory[tile.first(row) + i] = static_cast"
    edits = {"elements.cuh": ((masked, masked.replace("tile.holds(row, i)", "true")),)} if planted else {}
    done = subprocess.run(
        [sys.executable, "-c", OVERFLOW.format(edits=edits)],
        cwd=cuda_emulator.ROOT,
        env=address_sanitizer.environment(),
        capture_output=True,
        text=True,
    )
    if planted:
        assert done.returncode != 0
        assert "heap-buffer-overflow" in done.stderr and "elements.cuh" in done.stderr, done.stderr[-3000:]
    else:
        assert done.returncode == 0 and done.stdout == "finished\n", done.stderr[-3000:]
