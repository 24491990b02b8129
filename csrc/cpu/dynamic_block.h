// One block on the dynamic map.
#pragma once
#include "common/codebook.h"
#include "kernels.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// A subnormal value divided by an absmax from here on is below the first midpoint, like 0.
constexpr float SUBNORMALS_COUNT_BELOW = 0x1p-103f;
// The product of a value of the map and an absmax from here on is 0 or normal.
constexpr float PRODUCTS_SUBNORMAL_BELOW = 0x1p-104f;

// The bits of the larger magnitude. Magnitudes order like their bits; NaN and Inf come out as what they are.
inline uint32_t larger_magnitude(uint32_t bits, float x) {
  const uint32_t magnitude = bits_of(x) & MAGNITUDE_BITS;
  return magnitude > bits ? magnitude : bits;
}

inline uint32_t largest_magnitude(const float* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = larger_magnitude(largest, x[i]);
  return largest;
}

inline void restore_scalar(const DynamicMap& map, const uint8_t* codes, int64_t n, float absmax, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = flush_subnormal(map.values[codes[i]] * absmax);
}

inline void encode_scalar(const DynamicMap& map, const float* x, int64_t n, float inverse, uint8_t* codes) {
  for (int64_t i = 0; i < n; ++i) codes[i] = dynamic_code(map.buckets, map.zero_code, x[i] * inverse);
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA

#if defined(__AVX512BW__)
#include "dynamic_block_avx512.h"
#elif defined(__AVX2__)
#include "dynamic_block_avx2.h"
#else
namespace kpop::cpu::KPOP_ISA {
namespace {
inline void restore_map(const DynamicMap& map, const uint8_t* codes, int64_t n, float absmax, float* out) {
  restore_scalar(map, codes, n, absmax, out);
}
inline void encode_map(const DynamicMap& map, const float* x, int64_t n, float inverse, uint8_t* codes) {
  encode_scalar(map, x, n, inverse, codes);
}
}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
#endif

namespace kpop::cpu::KPOP_ISA {
namespace {

// Writes the codes and absmax of block number `block`, whose largest magnitude has the bits `largest`.
inline void quantize_dynamic(const DynamicMap& map, const float* x, int64_t n, uint32_t largest, DynamicCodes out,
                             int64_t block, int64_t first) {
  const float absmax = flush_subnormal(float_of(largest));
  uint8_t* codes = out.codes + first;
  const bool poisoned = !(bits_of(absmax) < INFINITY_BITS);
  out.absmax[block] = poisoned ? float_of(NAN_BITS) : absmax;
  if (poisoned || absmax == 0.0f) {
    memset(codes, map.zero_code, static_cast<size_t>(n));
    return;
  }
  const float prescale = absmax >= DYNAMIC_PRESCALE_FROM ? DYNAMIC_PRESCALE : 1.0f;
  float scaled[LARGEST_BLOCK];
  if (prescale != 1.0f || absmax < SUBNORMALS_COUNT_BELOW) {
    for (int64_t i = 0; i < n; ++i) scaled[i] = flush_subnormal(x[i]) * prescale;
    x = scaled;
  }
  encode_map(map, x, n, 1.0f / (absmax * prescale), codes);
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
