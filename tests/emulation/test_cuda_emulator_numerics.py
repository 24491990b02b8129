"""Rounding and bit intrinsics of the CUDA emulation, against numpy, torch and exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.emulation import cuda_emulator
from tests.emulation.tools import require_tool

SOURCE = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define FOR_EACH(i, n) \
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)

template <typename T>
__global__ void widen(const T* in, float* out, long long n) {
  FOR_EACH(i, n) out[i] = in[i];
}

template <typename T>
__global__ void narrow(const float* in, T* out, long long n) {
  FOR_EACH(i, n) out[i] = in[i];
}

template <typename T>
__global__ void arithmetic(const T* a, const T* b, T* out, long long n) {
  FOR_EACH(i, n) {
    out[i] = a[i] + b[i], out[n + i] = a[i] - b[i];
    out[2 * n + i] = a[i] * b[i], out[3 * n + i] = a[i] / b[i];
  }
}

__global__ void pairs(const float* in, __half2* halves, __nv_bfloat162* bfloats, float* out) {
  halves[0] = __floats2half2_rn(in[0], in[1]);
  bfloats[0] = __floats2bfloat162_rn(in[0], in[1]);
  const float2 from_half = __half22float2(__hmul2(halves[0], halves[0]));
  const float2 from_bfloat = __bfloat1622float2(__hadd2(bfloats[0], bfloats[0]));
  out[0] = from_half.x, out[1] = from_half.y, out[2] = from_bfloat.x, out[3] = from_bfloat.y;
  out[4] = __low2float(halves[0]), out[5] = __high2float(bfloats[0]);
}

#define ROUNDED(suffix)                                                                                 \
  __global__ void rounded_##suffix(const float* a, const float* b, const float* c, float* out, int n) { \
    FOR_EACH(i, n) {                                                                                    \
      float* mine = out + 6 * i;                                                                        \
      mine[0] = __fadd_##suffix(a[i], b[i]), mine[1] = __fsub_##suffix(a[i], b[i]);                     \
      mine[2] = __fmul_##suffix(a[i], b[i]), mine[3] = __fdiv_##suffix(a[i], b[i]);                     \
      mine[4] = __fmaf_##suffix(a[i], b[i], c[i]), mine[5] = __fsqrt_##suffix(fabsf(a[i]));             \
    }                                                                                                   \
  }
ROUNDED(rn)
ROUNDED(rz)
ROUNDED(rd)
ROUNDED(ru)

__global__ void to_integers(const float* in, int* out, unsigned* unsigned_out, long long n) {
  FOR_EACH(i, n) {
    out[4 * i] = __float2int_rn(in[i]), out[4 * i + 1] = __float2int_rz(in[i]);
    out[4 * i + 2] = __float2int_rd(in[i]), out[4 * i + 3] = __float2int_ru(in[i]);
    unsigned_out[i] = __float2uint_rn(in[i]);
  }
}

__global__ void bits(const unsigned* a, const unsigned* b, unsigned* out, long long n) {
  FOR_EACH(i, n) {
    unsigned* mine = out + 10 * i;
    mine[0] = __umulhi(a[i], b[i]), mine[1] = __mulhi(static_cast<int>(a[i]), static_cast<int>(b[i]));
    mine[2] = __brev(a[i]), mine[3] = __popc(a[i]), mine[4] = __clz(a[i]), mine[5] = __ffs(a[i]);
    mine[6] = __byte_perm(a[i], b[i], 0x7250), mine[7] = __byte_perm(a[i], b[i], 0x8bf4);
    mine[8] = __funnelshift_l(a[i], b[i], 11), mine[9] = __funnelshift_r(a[i], b[i], 11);
  }
}

__global__ void selections(const float* a, int* out) {
  out[0] = min(3, -4), out[1] = max(3u, 4u), out[2] = static_cast<int>(max(1.5f, 2.0f));
  out[3] = __float_as_int(__int_as_float(__float_as_int(a[0]))), out[4] = __float_as_uint(__ldg(a));
  out[5] = __float_as_int(rsqrtf(16.0f)), out[6] = __float_as_int(fmaxf(a[1], -2.0f));
}
"""

NARROW = {"float16": "__half", "bfloat16": "__nv_bfloat16"}
INSTANTIATIONS = [
    *(f"{kernel}<{name}>" for kernel in ("widen", "narrow", "arithmetic") for name in NARROW.values()),
    *(f"rounded_{suffix}" for suffix in ("rn", "rz", "rd", "ru")),
    *("pairs", "to_integers", "bits", "selections"),
]
LAUNCH = {"grid": 4, "block": 64}


@pytest.fixture(scope="module")
def kernels(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())
    return cuda_emulator.compile(SOURCE, INSTANTIATIONS)


def every_16_bit_value(dtype):
    return torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(getattr(torch, dtype))


def same_bits_or_nan(actual, expected):
    equal = actual.view(torch.uint16) == expected.view(torch.uint16)
    return bool((equal | (actual.isnan() & expected.isnan())).all())


@pytest.mark.parametrize("dtype", NARROW)
def test_every_16_bit_value_widens_exactly(kernels, dtype):
    values = every_16_bit_value(dtype)
    out = torch.empty(65536)
    kernels[f"widen<{NARROW[dtype]}>"](values, out, 65536, **LAUNCH)
    torch.testing.assert_close(out, values.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", NARROW)
def test_narrowing_rounds_to_nearest_even_around_every_value(kernels, dtype):
    """Each finite value, its midpoint to the next, and the float32 neighbours of both: every way to round."""
    finite = every_16_bit_value(dtype).float().numpy()
    finite = np.unique(finite[np.isfinite(finite)])
    with np.errstate(over="ignore"):
        midpoints = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
        overflow = finite[[0, -1]] + (finite[[0, -1]] - finite[[1, -2]]) / 2
        points = np.concatenate([finite, midpoints, overflow])
        neighbours = [np.nextafter(points, np.float32(limit)) for limit in (-np.inf, np.inf)]
    values = np.concatenate([points, *neighbours, [0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(np.float32)
    out = torch.empty(values.size, dtype=getattr(torch, dtype))
    kernels[f"narrow<{NARROW[dtype]}>"](values, out, values.size, **LAUNCH)
    assert values.size > 190_000
    assert same_bits_or_nan(out, torch.from_numpy(values).to(out.dtype))
    assert out.view(torch.uint16)[-1] == 0x7FFF


@pytest.mark.parametrize("dtype", NARROW)
def test_16_bit_arithmetic_rounds_once(kernels, dtype):
    random = np.random.default_rng(0)
    a, b = (every_16_bit_value(dtype)[random.integers(0, 65536, 20_000)] for _ in range(2))
    out = torch.empty(4, a.numel(), dtype=a.dtype)
    kernels[f"arithmetic<{NARROW[dtype]}>"](a, b, out, a.numel(), **LAUNCH)
    for row, expected in zip(out, (a + b, a - b, a * b, a / b), strict=True):
        assert same_bits_or_nan(row, expected)


def test_pairs(kernels):
    values = np.float32([1.0009765625 + 2**-12, -3.0])
    halves, bfloats = torch.empty(2, dtype=torch.float16), torch.empty(2, dtype=torch.bfloat16)
    out = np.empty(6, np.float32)
    kernels["pairs"](values, halves, bfloats, out, grid=1, block=1)
    assert torch.equal(halves, torch.from_numpy(values).half())
    assert torch.equal(bfloats, torch.from_numpy(values).bfloat16())
    squares, doubles = (halves * halves).float(), (bfloats + bfloats).float()
    assert out.tolist() == [*squares.tolist(), *doubles.tolist(), float(halves[0]), -3.0]


def rounded(exact, mode):
    """The float32 that an exact rational rounds to."""
    nearest = np.float32(float(exact))  # rounded twice, so within one unit
    candidates = [
        np.nextafter(nearest, np.float32(-np.inf)),
        nearest,
        np.nextafter(nearest, np.float32(np.inf)),
    ]
    below = max(c for c in candidates if Fraction(float(c)) <= exact)
    above = min(c for c in candidates if Fraction(float(c)) >= exact)
    if mode == "rn":
        left, right = exact - Fraction(float(below)), Fraction(float(above)) - exact
        even = below if int(below.view(np.uint32)) % 2 == 0 else above
        return below if left < right else above if right < left else even
    if mode == "rz":
        return below if exact >= 0 else above
    return below if mode == "rd" else above


@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru"])
def test_directed_roundings_are_exact(kernels, mode):
    random = np.random.default_rng(1)
    a, b, c = (
        (random.standard_normal(300) * 2.0 ** random.integers(-12, 12, 300)).astype(np.float32)
        for _ in range(3)
    )
    out = np.empty((300, 6), np.float32)
    kernels[f"rounded_{mode}"](a, b, c, out, 300, **LAUNCH)
    for x, y, z, row in zip(a, b, c, out, strict=True):
        fx, fy, fz = (Fraction(float(v)) for v in (x, y, z))
        expected = [rounded(exact, mode) for exact in (fx + fy, fx - fy, fx * fy, fx / fy, fx * fy + fz)]
        np.testing.assert_array_equal(row[:5], expected)
        root = Fraction(float(row[5]))
        ulp = Fraction(float(np.spacing(row[5])))
        bounds = {"rn": (ulp / 2, ulp / 2), "rz": (0, ulp), "rd": (0, ulp), "ru": (ulp, 0)}[mode]
        assert (root - bounds[0]) ** 2 <= abs(fx) <= (root + bounds[1]) ** 2


def test_float_to_integer_saturates_and_takes_nan_to_zero(kernels):
    values = np.float32(
        [0.5, 1.5, 2.5, -0.5, -1.5, 1e-9, -1e-9, 2.0**31, -(2.0**31), 3e9, -3e9, 5e9, np.inf, -np.inf]
    )
    values = np.concatenate([values, np.float32([np.nan, 16777217.0])])
    out, unsigned_out = np.empty((values.size, 4), np.int32), np.empty(values.size, np.uint32)
    kernels["to_integers"](values, out, unsigned_out, values.size, **LAUNCH)
    wide = values.astype(np.float64)
    for column, operation in enumerate((np.rint, np.trunc, np.floor, np.ceil)):
        clipped = np.clip(
            np.nan_to_num(operation(wide), nan=0, posinf=2**40, neginf=-(2**40)), -(2**31), 2**31 - 1
        )
        np.testing.assert_array_equal(out[:, column], clipped)
    clipped = np.clip(np.nan_to_num(np.rint(wide), nan=0, posinf=2**40, neginf=-(2**40)), 0, 2**32 - 1)
    np.testing.assert_array_equal(unsigned_out, clipped)


def test_bit_intrinsics(kernels):
    random = np.random.default_rng(2)
    a, b = random.integers(0, 2**32, (2, 500), dtype=np.uint32)
    a[:4] = 0, 1, 0x80000000, 0xFFFFFFFF
    out = np.empty((500, 10), np.uint32)
    kernels["bits"](a, b, out, 500, **LAUNCH)
    for x, y, row in zip(a.tolist(), b.tolist(), out.tolist(), strict=True):
        signed = [v - (v >> 31 << 32) for v in (x, y)]
        eight = x.to_bytes(4, "little") + y.to_bytes(4, "little")
        sign = [0xFF if byte & 0x80 else 0 for byte in eight]
        wide = y << 32 | x
        assert row == [
            x * y >> 32,
            (signed[0] * signed[1] >> 32) % 2**32,
            int(f"{x:032b}"[::-1], 2),
            x.bit_count(),
            32 - x.bit_length(),
            (x & -x).bit_length(),
            int.from_bytes(bytes([eight[0], eight[5], eight[2], eight[7]]), "little"),
            int.from_bytes(bytes([eight[4], sign[7], sign[3], sign[0]]), "little"),
            (wide << 11 >> 32) % 2**32,
            (wide >> 11) % 2**32,
        ]


def test_selections_and_reinterpretation(kernels):
    values = np.float32([-1.25, np.nan])
    out = np.empty(7, np.int32)
    kernels["selections"](values, out, grid=1, block=1)
    bits = int(values[:1].view(np.int32)[0])
    assert out.tolist() == [-4, 4, 2, bits, bits, *np.float32([0.25, -2.0]).view(np.int32).tolist()]
