// 8 calls of Philox in two vectors for each word, one call in each 64-bit lane. Multiplication reads the low halves of
// lanes only, so the high halves may hold anything.
#pragma once
#include "intrinsics.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

constexpr int CALLS_AT_ONCE = 8;
constexpr int VECTORS = 2;

inline __m256i lanes(uint64_t value) { return _mm256_set1_epi64x(static_cast<long long>(value)); }
inline __m256i high(__m256i product) { return _mm256_srli_epi64(product, 32); }
inline __m256i xor3(__m256i a, __m256i b, __m256i c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }

struct PhiloxLanes {
  __m256i c0, c1, c2, c3;
};

inline void philox_round(PhiloxLanes& c, __m256i k0, __m256i k1) {
  const __m256i p0 = _mm256_mul_epu32(c.c0, lanes(PHILOX_MULTIPLIER_0));
  const __m256i p1 = _mm256_mul_epu32(c.c2, lanes(PHILOX_MULTIPLIER_1));
  c = {xor3(high(p1), c.c1, k0), p1, xor3(high(p0), c.c3, k1), p0};
}

// Round 1: all words but c0 are the same in every call, and so are two of the results.
inline PhiloxLanes first_round(const RoundKeys& keys, uint64_t call, int vector) {
  const uint64_t m0 = PHILOX_MULTIPLIER_0;
  const uint64_t p1 = uint64_t{PHILOX_MULTIPLIER_1} * keys.step;
  const uint64_t first = m0 * (static_cast<uint32_t>(call) + 4 * static_cast<uint64_t>(vector));
  const __m256i p0 = _mm256_add_epi64(_mm256_setr_epi64x(0, 2 * m0, m0, 3 * m0), lanes(first));
  const uint32_t c0 = static_cast<uint32_t>(p1 >> 32) ^ static_cast<uint32_t>(call >> 32) ^ keys.k0[0];
  return {lanes(c0), lanes(static_cast<uint32_t>(p1)), _mm256_xor_si256(high(p0), lanes(keys.stream ^ keys.k1[0])),
          p0};
}

// Words 0 and 1, and 2 and 3, join in 64-bit lanes, then both in the order of elements.
inline void store_words(const PhiloxLanes& c, uint16_t* out) {
  const __m256i words01 = _mm256_blend_epi32(c.c0, _mm256_slli_epi64(c.c1, 32), 0xAA);
  const __m256i words23 = _mm256_blend_epi32(c.c2, _mm256_slli_epi64(c.c3, 32), 0xAA);
  const __m256i even = _mm256_unpacklo_epi64(words01, words23);
  const __m256i odd = _mm256_unpackhi_epi64(words01, words23);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), even);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16), odd);
}

inline void random16_group(const RoundKeys& keys, uint64_t call, uint16_t* out) {
  PhiloxLanes c[VECTORS];
#pragma GCC unroll 2
  for (int i = 0; i < VECTORS; ++i) c[i] = first_round(keys, call, i);
#pragma GCC unroll 9
  for (int round = 1; round < PHILOX_ROUNDS; ++round) {
#pragma GCC unroll 2
    for (int i = 0; i < VECTORS; ++i) philox_round(c[i], lanes(keys.k0[round]), lanes(keys.k1[round]));
  }
#pragma GCC unroll 2
  for (int i = 0; i < VECTORS; ++i) store_words(c[i], out + 32 * i);
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
