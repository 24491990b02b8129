// What code needs that host and device compilers share. Such code uses nothing of std, and its functions have
// internal linkage: every translation unit keeps its own copy, compiled for its own instruction set.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define KPOP_HOST_DEVICE static __host__ __device__ __forceinline__
#else
#define KPOP_HOST_DEVICE static inline
#endif

namespace kpop {

KPOP_HOST_DEVICE uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

KPOP_HOST_DEVICE float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr uint32_t MAGNITUDE_BITS = 0x7FFFFFFF;
constexpr uint32_t INFINITY_BITS = 0x7F800000;
constexpr uint32_t NAN_BITS = 0x7FC00000;
constexpr uint32_t SMALLEST_NORMAL_BITS = 0x00800000;
constexpr float SMALLEST_NORMAL = 0x1p-126f;

// Hardware without subnormals reads them as 0; flushing them first makes all hardware agree.
KPOP_HOST_DEVICE float flush_subnormal(float value) {
  return (bits_of(value) & MAGNITUDE_BITS) < SMALLEST_NORMAL_BITS ? 0.0f : value;
}

// One rounding each. The host compiler is told not to contract products and sums, a device compiler decides by itself.
#ifdef __CUDA_ARCH__
KPOP_HOST_DEVICE float rounded_sum(float a, float b) { return __fadd_rn(a, b); }
KPOP_HOST_DEVICE float rounded_product(float a, float b) { return __fmul_rn(a, b); }
KPOP_HOST_DEVICE float rounded_quotient(float a, float b) { return __fdiv_rn(a, b); }
#else
KPOP_HOST_DEVICE float rounded_sum(float a, float b) { return a + b; }
KPOP_HOST_DEVICE float rounded_product(float a, float b) { return a * b; }
KPOP_HOST_DEVICE float rounded_quotient(float a, float b) { return a / b; }
#endif

}  // namespace kpop
