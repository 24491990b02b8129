"""The instructions of csrc/cuda/ptx.cuh as the emulation runs them: lane maps against numpy's matmul."""

import numpy as np
import pytest
import torch

from tests.emulation import cuda_emulator
from tests.emulation.tools import require_tool

SOURCE = cuda_emulator.HEADERS / "ptx_kernels.cuh"

INSTANTIATIONS = [
    *(
        f"{kernel}<{name}>"
        for kernel in ("multiply", "multiply_ldmatrix")
        for name in ("__half", "__nv_bfloat16")
    ),
    *(f"load_matrices<{count}>" for count in (1, 2, 4)),
    *(f"copy_groups<{pending}>" for pending in (0, 1)),
    *("multiply_tf32", "mma_for_some", "round_tf32", "arithmetic"),
]
WARP = {"grid": 1, "block": 32}


@pytest.fixture(scope="module")
def kernels(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())
    return cuda_emulator.compile(SOURCE, INSTANTIATIONS)


@pytest.mark.parametrize("order", cuda_emulator.ORDERS)
@pytest.mark.parametrize("dtype, name", [(torch.float16, "__half"), (torch.bfloat16, "__nv_bfloat16")])
class TestSixteenBitProducts:
    def test_integers_multiply_exactly(self, kernels, dtype, name, order):
        """Sums of small integers are exact in any order, so that only the lane map can be wrong."""
        random = np.random.default_rng(3)
        a, b, c = (random.integers(-8, 9, shape).astype(np.float32) for shape in ((16, 16), (16, 8), (16, 8)))
        tensors = [torch.from_numpy(matrix).to(dtype) for matrix in (a, b)]
        accumulated, fresh = c.copy(), np.empty_like(c)
        kernels[f"multiply<{name}>"](*tensors, accumulated, **WARP, order=order)
        kernels[f"multiply_ldmatrix<{name}>"](*tensors, fresh, **WARP, order=order)
        np.testing.assert_array_equal(accumulated, a @ b + c)
        np.testing.assert_array_equal(fresh, a @ b)

    def test_sums_are_accumulated_in_float32(self, kernels, dtype, name, order):
        random = np.random.default_rng(4)
        a, b = (torch.from_numpy(random.standard_normal(shape)).to(dtype) for shape in ((16, 16), (16, 8)))
        c = np.zeros((16, 8), np.float32)
        kernels[f"multiply<{name}>"](a, b, c, **WARP, order=order)
        exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        assert (np.abs(c - exact.numpy()) <= 16 * 2.0**-24 * size.numpy()).all()
        assert not torch.equal(torch.from_numpy(c), torch.from_numpy(c).to(dtype).float())


@pytest.mark.parametrize("rounded", [False, True])
def test_tf32_products_read_19_bits(kernels, rounded):
    random = np.random.default_rng(5)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((16, 8), (8, 8)))
    c = np.empty((16, 8), np.float32)
    kernels["multiply_tf32"](a, b, c, rounded, **WARP)
    low = np.uint32(0x1000 if rounded else 0)
    short_a, short_b = (
        ((m.view(np.uint32) + low) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
        for m in (a, b)
    )
    error = np.abs(c - short_a @ short_b)
    assert (error <= 8 * 2.0**-24 * (np.abs(short_a) @ np.abs(short_b))).all()
    assert np.abs(c - a.astype(np.float64) @ b).max() > 1e-4


def test_tf32_rounds_ties_away_from_zero(kernels):
    one_ulp = 2.0**-10
    values = [
        1 + one_ulp / 2,
        1 + one_ulp / 2 - 2.0**-23,
        -1 - one_ulp / 2,
        1 + 3 * one_ulp / 2,
        np.inf,
        -np.inf,
    ]
    values = np.float32(values + [0.0] * 26)
    out = np.empty(32, np.uint32)
    kernels["round_tf32"](values, out, **WARP)
    expected = [1 + one_ulp, 1, -1 - one_ulp, 1 + 2 * one_ulp, np.inf, -np.inf]
    np.testing.assert_array_equal(out[:6].view(np.float32), np.float32(expected))


def test_subnormal_factors_and_products_are_flushed(kernels):
    tiny = 2.0**-126
    pairs = [(3.0, 1 / 3), (tiny, 0.5), (-tiny, 0.5), (tiny / 2, 2.0), (-tiny / 2, 2.0), (tiny, -1.0)]
    pairs += [(2.0**-70, 2.0**-70), (np.inf, 2.0), (np.nan, 0.0), (2.0**127, 2.0)] + [(0.0, 0.0)] * 22
    a, b = np.float32(pairs).T.copy()
    products, packed = np.empty(32, np.float32), np.empty(32, np.uint32)
    kernels["arithmetic"](a, b, products, np.zeros(64, np.int32), packed, **WARP)
    expected = [np.float32(3) * np.float32(1 / 3), 0.0, -0.0, 0.0, -0.0, -tiny, 0.0, np.inf, np.nan, np.inf]
    np.testing.assert_array_equal(products[:10], np.float32(expected))
    np.testing.assert_array_equal(np.signbit(products[:7]), [False, False, True, False, True, True, False])


def test_packed_bytes_are_clamped_and_the_low_half_moves_up(kernels):
    codes = np.resize(np.int32([-5, 0, 255, 256, 7, 2**30, -(2**31), 128]), 64)
    zeros, packed = np.zeros(32, np.float32), np.empty(32, np.uint32)
    kernels["arithmetic"](zeros, zeros, zeros.copy(), codes, packed, **WARP)
    a, b = np.clip(codes, 0, 255).reshape(32, 2).T.astype(np.uint32)
    low_half = np.arange(32, dtype=np.uint32) << 8 & 0xFFFF | 0x12
    np.testing.assert_array_equal(packed, low_half << 16 | a << 8 | b)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_gives_each_lane_two_neighbours_of_every_matrix(kernels, count):
    matrices = np.arange(1000, 1256, dtype=np.uint16).reshape(4, 8, 8)
    plain, transposed = np.empty((2, 32, count), np.uint32)
    kernels[f"load_matrices<{count}>"](matrices, plain, transposed, 0, **WARP)
    for loaded, source in ((plain, matrices), (transposed, matrices.transpose(0, 2, 1))):
        pairs = loaded.view(np.uint16).reshape(32, count, 2)
        for lane in range(32):
            row, column = lane // 4, lane % 4 * 2
            np.testing.assert_array_equal(pairs[lane], source[:count, row, column : column + 2])


@pytest.mark.parametrize("bytes_copied", [16, 8, 0])
def test_an_awaited_copy_has_arrived_and_is_filled_with_zeros(kernels, bytes_copied):
    values = np.random.default_rng(6).standard_normal((3, 32, 4)).astype(np.float32)
    out = np.empty_like(values)
    kernels["copy_groups<0>"](values, out, bytes_copied, 0, **WARP, order="shuffled")
    values[:, :, bytes_copied // 4 :] = 0
    np.testing.assert_array_equal(out, values[:, ::-1])


def test_a_copy_that_is_not_awaited_has_not_arrived(kernels):
    """Three copies, the first two committed as a group each, all but one of the groups awaited."""
    values = np.zeros((3, 32, 4), np.float32)
    out = np.zeros_like(values)
    kernels["copy_groups<1>"](values, out, 16, 0, **WARP)
    assert (out[0] == 0).all()
    assert np.isnan(out[1:]).all()


@pytest.mark.parametrize(
    "name, arguments, error, message",
    [
        ("mma_for_some", (np.zeros(32, "f4"),), "MissingLanes", "mma.m16n8k16.fp16 .*lane 7 .*exited"),
        (
            "load_matrices<4>",
            (np.zeros(256, "u2"), np.zeros(128, "u4"), np.zeros(128, "u4"), 4),
            "MisalignedAccess",
            "ldmatrix .*multiples of 16 bytes",
        ),
        (
            "copy_groups<0>",
            (np.zeros(384, "f4"), np.zeros(384, "f4"), 16, 8),
            "MisalignedAccess",
            "cp.async .*both addresses",
        ),
    ],
)
def test_bugs_are_reported(kernels, name, arguments, error, message):
    with pytest.raises(getattr(cuda_emulator, error), match=message):
        kernels[name](*arguments, **WARP)
