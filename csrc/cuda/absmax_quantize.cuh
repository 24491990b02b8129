// Block-wise absolute maximum and int8 quantization, rounded to nearest.
//
// The input is a flat array cut into blocks of BLOCK elements; the last may be short. For each block, in
// float32 with every operation rounded to nearest even and none fused:
//   1. x is widened exactly; |x| < 2^-126 counts as 0.
//   2. absmax = max |x|. If it is NaN or infinite: scale = NaN (bits 0x7fc00000), all codes 0.
//   3. scale = absmax / 127. If scale < 2^-126 (so for a block of zeros): scale = 0, all codes 0.
//   4. inv = 1 / scale, one division for the block.
//   5. code = clamp(floor(x * inv + 0.5), -127, 127).
// Every backend computes these bits.
//
//    thread    0        1        2       ...
//    x      [ 16 el. | 16 el. | 16 el. | ... ]    loaded and stored in pieces of 16 bytes
//    block  [<------ BLOCK / 16 threads ----->]   maximum by shuffles and, beyond a warp, shared memory
//
// Bound by memory bandwidth: 5 bytes per float32 element.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace kpop {

struct AbsmaxQuantize {
  static constexpr int threads = 256;
  static constexpr int elements_per_thread = 16;
  static constexpr int elements = threads * elements_per_thread;  // of one thread block
};

namespace absmax_quantize_detail {

constexpr float smallest_normal = 0x1p-126f;
constexpr uint32_t infinity_bits = 0x7f800000u;
constexpr uint32_t quiet_nan_bits = 0x7fc00000u;
constexpr unsigned full_warp = 0xffffffffu;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
struct alignas(16) Piece {
  static constexpr int size = 16 / sizeof(T);
  T elements[size];
};

// Fills `values` with x[first] ... x[first + 15], and 0 from x[n] on.
template <typename T, int count>
__device__ __forceinline__ void load(float (&values)[count], const T* x, int64_t first, int64_t n,
                                     bool whole) {
  if (whole) {
    const auto* pieces = reinterpret_cast<const Piece<T>*>(x + first);
#pragma unroll
    for (int i = 0; i < count; i += Piece<T>::size) {
      const Piece<T> piece = pieces[i / Piece<T>::size];
#pragma unroll
      for (int j = 0; j < Piece<T>::size; ++j) values[i + j] = widen(piece.elements[j]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = first + i < n ? widen(x[first + i]) : 0.0f;
  }
}

template <int count>
__device__ __forceinline__ void store(int8_t* codes, const int8_t (&values)[count], int64_t first, int64_t n,
                                      bool whole) {
  static_assert(count == Piece<int8_t>::size, "a thread stores its codes at once");
  if (whole) {
    Piece<int8_t> piece;
#pragma unroll
    for (int i = 0; i < count; ++i) piece.elements[i] = values[i];
    *reinterpret_cast<Piece<int8_t>*>(codes + first) = piece;
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i)
      if (first + i < n) codes[first + i] = values[i];
  }
}

// The largest of the values held by `lanes` neighbouring threads, a power of two, in each of them.
template <int lanes>
__device__ __forceinline__ uint32_t max_over_threads(uint32_t value) {
  constexpr int warp_lanes = lanes < 32 ? lanes : 32;
#pragma unroll
  for (int offset = warp_lanes / 2; offset > 0; offset /= 2)
    value = max(value, __shfl_xor_sync(full_warp, value, offset));
  if constexpr (lanes > 32) {
    __shared__ uint32_t warp_max[AbsmaxQuantize::threads / 32];
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) warp_max[warp] = value;
    __syncthreads();
    constexpr int warps = lanes / 32;
    const int first_warp = warp / warps * warps;
#pragma unroll
    for (int i = 0; i < warps; ++i) value = max(value, warp_max[first_warp + i]);
  }
  return value;
}

}  // namespace absmax_quantize_detail

// Launched with AbsmaxQuantize::threads threads and ceil(n / AbsmaxQuantize::elements) thread blocks.
// `scales` has ceil(n / BLOCK) elements. x and codes may have any address; multiples of 16 take the 16-byte
// path.
template <typename T, int BLOCK>
__global__ void __launch_bounds__(AbsmaxQuantize::threads)
    absmax_quantize(const T* __restrict__ x, int8_t* __restrict__ codes, float* __restrict__ scales,
                    int64_t n) {
  using namespace absmax_quantize_detail;
  static_assert(BLOCK >= 32 && BLOCK <= 2048 && (BLOCK & (BLOCK - 1)) == 0,
                "BLOCK is a power of two, 32 to 2048");
  constexpr int count = AbsmaxQuantize::elements_per_thread;
  const int64_t first = (int64_t{blockIdx.x} * AbsmaxQuantize::threads + threadIdx.x) * count;
  const bool aligned = ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(codes)) & 15) == 0;
  const bool whole = aligned && first + count <= n;

  float values[count];
  load(values, x, first, n, whole);

  // Magnitudes are compared as integers: their order is the same, and NaN is above infinity.
  uint32_t absmax_bits = 0;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (fabsf(values[i]) < smallest_normal) values[i] = 0.0f;
    absmax_bits = max(absmax_bits, __float_as_uint(fabsf(values[i])));
  }
  absmax_bits = max_over_threads<BLOCK / count>(absmax_bits);

  const bool finite = absmax_bits < infinity_bits;
  float scale = __fdiv_rn(__uint_as_float(absmax_bits), 127.0f);
  if (!(scale >= smallest_normal)) scale = 0.0f;
  const float inv = finite && scale > 0.0f ? __fdiv_rn(1.0f, scale) : 0.0f;
  if (!finite) scale = __uint_as_float(quiet_nan_bits);

  int8_t quantized[count];
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const float rounded = floorf(__fadd_rn(__fmul_rn(values[i], inv), 0.5f));
    const float clamped = fminf(fmaxf(rounded, -127.0f), 127.0f);
    quantized[i] = static_cast<int8_t>(finite ? static_cast<int>(clamped) : 0);
  }
  store(codes, quantized, first, n, whole);
  if (first % BLOCK == 0 && first < n) scales[first / BLOCK] = scale;
}

}  // namespace kpop
