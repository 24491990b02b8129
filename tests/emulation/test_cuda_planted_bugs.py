"""Bugs planted in csrc/cuda/absmax_quantize.cuh: each test passes because the harness catches its bug."""

import subprocess
import sys

import numpy as np
import pytest

from tests.emulation import address_sanitizer, cuda_emulator
from tests.emulation.absmax_quantize_cases import absmax_quantize
from tests.emulation.guard_bands import GuardBandError, GuardBands
from tests.emulation.tools import require_tool

SOURCE = cuda_emulator.CSRC / "cuda" / "absmax_quantize.cuh"
KERNELS = ("kpop::absmax_quantize<float, 256>", "kpop::absmax_quantize<float, 2048>")


@pytest.fixture(autouse=True)
def compiler(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())


def mutated(*replacements):
    """The kernels of the source after textual changes, each of which must apply exactly once."""
    text = SOURCE.read_text()
    for old, new in replacements:
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        text = text.replace(old, new)
    return cuda_emulator.compile(text, KERNELS)


def wrong_results(kernels, block_size, order="forward", *, size=8192, offset_bytes=0, swap_outputs=False):
    """Run a kernel on a ragged size and return how many codes and scales differ from the definition."""
    bands = GuardBands()
    values = np.random.default_rng(7).standard_normal(size).astype(np.float32)
    x = bands.place("x", values, offset_bytes)
    codes = bands.poisoned("codes", size, np.int8)
    scales = bands.poisoned("scales", -(-size // block_size), np.float32)
    outputs = (scales, codes) if swap_outputs else (codes, scales)
    kernel = kernels[f"kpop::absmax_quantize<float, {block_size}>"]
    kernel(x, *outputs, size, grid=-(-size // 4096), block=256, order=order)
    bands.check()
    expected_codes, expected_scales = absmax_quantize(values, block_size)
    return int((codes != expected_codes).sum() + (scales.view("u4") != expected_scales.view("u4")).sum())


@pytest.mark.parametrize("order", cuda_emulator.ORDERS)
def test_the_unchanged_source_has_none(order):
    kernels = mutated()
    assert all(wrong_results(kernels, size, order) == 0 for size in (256, 2048))


def test_a_dropped_barrier_gives_wrong_results_in_some_order():
    kernels = mutated(("    __syncthreads();\n", ""))
    wrong = {order: wrong_results(kernels, 2048, order) for order in cuda_emulator.ORDERS}
    assert max(wrong.values()) > 0, wrong


def test_a_wrong_lane_gives_wrong_results():
    kernels = mutated(
        ("__shfl_xor_sync(full_warp, value, offset)", "__shfl_xor_sync(full_warp, value, offset / 2)")
    )
    assert wrong_results(kernels, 256) > 0


def test_a_shuffle_that_lanes_skip_is_reported():
    kernels = mutated(("  absmax_bits = max_over_threads", "  if (first < n) absmax_bits = max_over_threads"))
    with pytest.raises(cuda_emulator.MissingLanes, match=r"__shfl_xor_sync .*has exited"):
        wrong_results(kernels, 256, size=8192 - 100)


def test_a_barrier_in_divergent_code_is_reported():
    kernels = mutated(
        ("if (threadIdx.x % 32 == 0) warp_max[warp] = value;\n    __syncthreads();",
         "if (threadIdx.x % 32 == 0) {\n      warp_max[warp] = value;\n      __syncthreads();\n    }")
    )  # fmt: skip
    with pytest.raises(cuda_emulator.DivergentBarrier, match=r"not reached by all 256 threads"):
        wrong_results(kernels, 2048)


def test_a_missing_mask_writes_into_a_guard_band():
    kernels = mutated(("      if (first + i < n) codes[first + i]", "      codes[first + i]"))
    with pytest.raises(GuardBandError, match="behind the array 'codes'"):
        wrong_results(kernels, 256, size=8192 - 100)


def test_a_missing_mask_reads_nan_from_a_guard_band():
    kernels = mutated(("first + i < n ? widen(x[first + i]) : 0.0f", "widen(x[first + i])"))
    assert wrong_results(kernels, 256, size=8192 - 100) > 0


def test_a_missing_mask_writes_scales_behind_the_last():
    kernels = mutated(("if (first % BLOCK == 0 && first < n)", "if (first % BLOCK == 0)"))
    with pytest.raises(GuardBandError, match="behind the array 'scales'"):
        wrong_results(kernels, 256, size=4096 + 300)


def test_swapped_outputs_are_refused_by_type():
    with pytest.raises(TypeError, match=r"argument 1 .*int8\* does not take elements of float32"):
        wrong_results(mutated(), 256, swap_outputs=True)


def test_an_index_into_the_wrong_buffer_position_gives_wrong_results():
    kernels = mutated(("scales[first / BLOCK] = scale", "scales[blockIdx.x] = scale"))
    assert wrong_results(kernels, 256) > 0


def test_a_misaligned_vector_access_is_reported():
    kernels = mutated(("const bool whole = aligned && ", "const bool whole = "))
    assert wrong_results(kernels, 256) == 0
    with pytest.raises(cuda_emulator.MisalignedAccess, match=r"Piece.* 4 modulo 16"):
        wrong_results(kernels, 256, offset_bytes=4)


def test_shared_memory_that_is_too_small_is_reported():
    kernels = mutated(("warp_max[AbsmaxQuantize::threads / 32]", "warp_max[AbsmaxQuantize::threads / 64]"))
    with pytest.raises(cuda_emulator.OutOfBounds, match=r"index 4 of .*\[4\]"):
        wrong_results(kernels, 2048)


def test_a_contracted_product_gives_wrong_results():
    kernels = mutated(("__fadd_rn(__fmul_rn(values[i], inv), 0.5f)", "__fmaf_rn(values[i], inv, 0.5f)"))
    # Half-way values and their neighbours: the product's own rounding decides some of them.
    absmax = np.linspace(1, 2, 16, dtype=np.float32)[:, None]
    halfway = (np.arange(-127, 128) / 2).astype(np.float32) * (absmax / np.float32(127))
    values = np.concatenate([absmax, np.nextafter(halfway, np.float32(0))], axis=1)
    codes, scales = np.empty(values.size, np.int8), np.empty(16, np.float32)
    kernels[KERNELS[0]](values, codes, scales, values.size, grid=1, block=256)
    assert (codes != absmax_quantize(values.ravel(), 256)[0]).any()


OVERFLOW = """
import numpy as np
from tests.emulation import address_sanitizer
from tests.emulation.test_cuda_planted_bugs import KERNELS, mutated

assert address_sanitizer.loaded()
replacements = {replacements}
kernels = mutated(*replacements)
size = 4096 - 100
x = np.ones(size, np.float32)
codes, scales = np.empty(size, np.int8), np.empty(16, np.float32)
kernels[KERNELS[0]](x, codes, scales, size, grid=1, block=256)
assert (codes == 127).all()
print("finished")
"""


@pytest.mark.parametrize("planted", [False, True])
def test_address_sanitizer_stops_a_heap_overflow(planted):
    """No guard band here: the arrays end where their allocations end."""
    replacement = ("      if (first + i < n) codes[first + i]", "      codes[first + i]")
    script = OVERFLOW.format(replacements=[replacement] if planted else [])
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=cuda_emulator.ROOT,
        env=address_sanitizer.environment(),
        capture_output=True,
        text=True,
    )
    if planted:
        assert done.returncode != 0
        assert "heap-buffer-overflow" in done.stderr and "source.cuh" in done.stderr, done.stderr[-3000:]
    else:
        assert done.returncode == 0 and done.stdout == "finished\n", done.stderr[-3000:]
