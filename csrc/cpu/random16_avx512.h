// 32 calls of Philox in four vectors for each word, one call in each 64-bit lane. Multiplication reads the low halves
// of lanes only, so the high halves may hold anything.
#pragma once
#include "intrinsics.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

constexpr int CALLS_AT_ONCE = 32;
constexpr int VECTORS = 4;

inline __m512i lanes(uint64_t value) { return _mm512_set1_epi64(static_cast<long long>(value)); }
inline __m512i high(__m512i product) { return _mm512_srli_epi64(product, 32); }
inline __m512i xor3(__m512i a, __m512i b, __m512i c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }

struct PhiloxLanes {
  __m512i c0, c1, c2, c3;
};

// Only word 0 of the counter differs between the calls of a group, so that half of the first two rounds is shared.
struct PhiloxStart {
  uint64_t p0;      // round 1: the product of the first call
  uint32_t c1;      // after round 1
  uint32_t c2, c3;  // after round 2; c2 still lacks the part that differs
};

inline PhiloxStart philox_start(const RoundKeys& keys, uint64_t call) {
  PhiloxStart start;
  const uint64_t p1 = uint64_t{PHILOX_MULTIPLIER_1} * keys.step;
  const uint32_t c0 = static_cast<uint32_t>(p1 >> 32) ^ static_cast<uint32_t>(call >> 32) ^ keys.k0[0];
  const uint64_t second_p0 = uint64_t{PHILOX_MULTIPLIER_0} * c0;
  start.p0 = uint64_t{PHILOX_MULTIPLIER_0} * static_cast<uint32_t>(call);
  start.c1 = static_cast<uint32_t>(p1);
  start.c2 = static_cast<uint32_t>(second_p0 >> 32) ^ keys.k1[1];
  start.c3 = static_cast<uint32_t>(second_p0);
  return start;
}

// Returns the state of eight calls after two rounds, in the order of lanes that the last unpacking sorts.
inline PhiloxLanes first_rounds(const RoundKeys& keys, const PhiloxStart& start, int vector) {
  const uint64_t m0 = PHILOX_MULTIPLIER_0;
  const __m512i steps = _mm512_setr_epi64(0, 4 * m0, m0, 5 * m0, 2 * m0, 6 * m0, 3 * m0, 7 * m0);
  const __m512i p0 = _mm512_add_epi64(steps, lanes(start.p0 + 8 * m0 * static_cast<uint64_t>(vector)));
  const __m512i c2 = _mm512_xor_si512(high(p0), lanes(keys.stream ^ keys.k1[0]));
  const __m512i p1 = _mm512_mul_epu32(c2, lanes(PHILOX_MULTIPLIER_1));
  return {_mm512_xor_si512(high(p1), lanes(start.c1 ^ keys.k0[1])), p1, _mm512_xor_si512(p0, lanes(start.c2)),
          lanes(start.c3)};
}

inline void philox_round(PhiloxLanes& c, __m512i k0, __m512i k1) {
  const __m512i p0 = _mm512_mul_epu32(c.c0, lanes(PHILOX_MULTIPLIER_0));
  const __m512i p1 = _mm512_mul_epu32(c.c2, lanes(PHILOX_MULTIPLIER_1));
  c = {xor3(high(p1), c.c1, k0), p1, xor3(high(p0), c.c3, k1), p0};
}

// The last round joins words 0 and 1, and 2 and 3, into 64-bit lanes, then both into the order of elements.
inline void last_round(const PhiloxLanes& c, __m512i k0, __m512i k1, uint16_t* out) {
  const __mmask16 low_halves = 0x5555;
  const __m512i p0 = _mm512_mul_epu32(c.c0, lanes(PHILOX_MULTIPLIER_0));
  const __m512i p1 = _mm512_mul_epu32(c.c2, lanes(PHILOX_MULTIPLIER_1));
  __m512i words01 = _mm512_ror_epi64(p1, 32);
  __m512i words23 = _mm512_ror_epi64(p0, 32);
  words01 = _mm512_mask_ternarylogic_epi32(words01, low_halves, c.c1, k0, 0x96);
  words23 = _mm512_mask_ternarylogic_epi32(words23, low_halves, c.c3, k1, 0x96);
  _mm512_storeu_si512(out, _mm512_unpacklo_epi64(words01, words23));
  _mm512_storeu_si512(out + 32, _mm512_unpackhi_epi64(words01, words23));
}

inline void random16_group(const RoundKeys& keys, uint64_t call, uint16_t* out) {
  const PhiloxStart start = philox_start(keys, call);
  PhiloxLanes c[VECTORS];
#pragma GCC unroll 4
  for (int i = 0; i < VECTORS; ++i) c[i] = first_rounds(keys, start, i);
#pragma GCC unroll 8
  for (int round = 2; round < PHILOX_ROUNDS - 1; ++round) {
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; ++i) philox_round(c[i], lanes(keys.k0[round]), lanes(keys.k1[round]));
  }
#pragma GCC unroll 4
  for (int i = 0; i < VECTORS; ++i)
    last_round(c[i], lanes(keys.k0[PHILOX_ROUNDS - 1]), lanes(keys.k1[PHILOX_ROUNDS - 1]), out + 64 * i);
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
