"""csrc/cuda/absmax_quantize.cuh on the CPU, bit for bit against its definition in numpy."""

import numpy as np
import pytest
import torch

from tests.emulation import cuda_emulator
from tests.emulation.absmax_quantize_cases import absmax_quantize, corner_values
from tests.emulation.guard_bands import GuardBands
from tests.emulation.tools import require_tool

SOURCE = cuda_emulator.CSRC / "cuda" / "absmax_quantize.cuh"
TYPES = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}
BLOCK_SIZES = (32, 64, 128, 256, 512, 1024, 2048)
THREADS, ELEMENTS = 256, 4096  # AbsmaxQuantize::threads, ::elements


def instantiation(dtype, block_size):
    return f"kpop::absmax_quantize<{TYPES[dtype]}, {block_size}>"


@pytest.fixture(scope="module")
def kernels(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())
    return cuda_emulator.compile(
        SOURCE, [instantiation(dtype, size) for dtype in TYPES for size in BLOCK_SIZES]
    )


def narrowed(x, dtype):
    """The values a tensor of this type holds, and its bits as numpy holds them."""
    tensor = torch.from_numpy(x).to(getattr(torch, dtype))
    bits = tensor.view(torch.uint16).numpy() if dtype == "bfloat16" else tensor.numpy()
    return tensor.float().numpy(), bits


def quantize(kernels, stored, dtype, block_size, *, offset_bytes=0, order="forward"):
    bands = GuardBands()
    x = bands.place("x", stored, offset_bytes)
    codes = bands.poisoned("codes", x.size, np.int8, offset_bytes)
    scales = bands.poisoned("scales", -(-x.size // block_size), np.float32)
    kernel = kernels[instantiation(dtype, block_size)]
    kernel(x, codes, scales, x.size, grid=-(-x.size // ELEMENTS), block=THREADS, order=order, seed=x.size)
    bands.check()
    assert x.tobytes() == stored.tobytes(), "the input was written to"
    return codes, scales


def assert_same_bits(actual, expected):
    for name, ours, theirs in zip(("codes", "scales"), actual, expected, strict=True):
        np.testing.assert_array_equal(
            ours.view(f"u{ours.itemsize}"), theirs.view(f"u{theirs.itemsize}"), name
        )


@pytest.mark.parametrize("order", cuda_emulator.ORDERS)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("dtype", TYPES)
def test_matches_the_definition(kernels, dtype, block_size, order):
    values, stored = narrowed(corner_values(3 * ELEMENTS + 5, seed=block_size), dtype)
    expected = absmax_quantize(values, block_size)
    assert np.isnan(expected[1]).any() and (expected[1] == 0).any() and (np.abs(expected[0]) == 127).any()
    assert_same_bits(quantize(kernels, stored, dtype, block_size, order=order), expected)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 31, 32, 33, 255, 257, 2047, 2049, 4095, 4097, 8191])
@pytest.mark.parametrize("block_size", [32, 256, 2048])
def test_the_last_block_may_be_short(kernels, size, block_size):
    values = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    assert_same_bits(quantize(kernels, values, "float32", block_size), absmax_quantize(values, block_size))


@pytest.mark.parametrize(
    "dtype, offset_bytes", [("float32", 4), ("float16", 2), ("bfloat16", 8), ("float32", 16)]
)
def test_any_address_is_served(kernels, dtype, offset_bytes):
    values, stored = narrowed(corner_values(ELEMENTS + 77), dtype)
    actual = quantize(kernels, stored, dtype, 256, offset_bytes=offset_bytes)
    assert_same_bits(actual, absmax_quantize(values, 256))


@pytest.mark.parametrize(
    "block, scale, codes",
    [
        ([0.0, -0.0], 0.0, [0, 0]),
        ([2.0**-127, -(2.0**-149)], 0.0, [0, 0]),
        ([126 * 2.0**-126], 0.0, [0]),
        ([127 * 2.0**-126, -63.5 * 2.0**-126], 2.0**-126, [127, -63]),
        ([127.0, 0.5, -0.5, 1.5, -1.5, 0.49999997], 1.0, [127, 1, 0, 2, -1, 1]),
        ([127.0, 2.0**-127], 1.0, [127, 0]),
        ([-254.0, 254.0, 253.0], 2.0, [-127, 127, 127]),
        ([1.0, np.inf], np.nan, [0, 0]),
        ([-np.inf, 1.0], np.nan, [0, 0]),
        ([np.nan, 127.0], np.nan, [0, 0]),
        ([3.4028235e38, -3.4028235e38], 3.4028235e38 / 127, [127, -127]),
    ],
)
def test_worked_examples(kernels, block, scale, codes):
    """Fixed by hand, so that kernel and definition cannot be wrong together."""
    actual_codes, actual_scales = quantize(kernels, np.float32(block), "float32", 32)
    np.testing.assert_array_equal(actual_scales, np.float32([scale]))
    np.testing.assert_array_equal(actual_codes, codes)
