// The dynamic map by eight loads from a table at a time: of values to restore, of buckets to find codes. Loads one by
// one are faster than gather instructions.
#pragma once
#include "intrinsics.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

inline void restore_map(const DynamicMap& map, const uint8_t* codes, int64_t n, float absmax, float* out) {
  int64_t i = 0;
  if (!(absmax < PRODUCTS_SUBNORMAL_BELOW)) {
    for (; i + 8 <= n; i += 8) {
      const float* values = map.values;
      const uint8_t* c = codes + i;
      const __m256 eight = _mm256_setr_ps(values[c[0]], values[c[1]], values[c[2]], values[c[3]], values[c[4]],
                                          values[c[5]], values[c[6]], values[c[7]]);
      _mm256_storeu_ps(out + i, _mm256_mul_ps(eight, _mm256_set1_ps(absmax)));
    }
  }
  restore_scalar(map, codes + i, n - i, absmax, out + i);
}

inline __m256i load_buckets(const uint32_t* buckets, __m256i index) {
  const uint32_t* first = buckets - DYNAMIC_BUCKET_FIRST;
  const auto pair = [first](int64_t two) {
    const uint64_t low = first[static_cast<uint32_t>(two)];
    const uint64_t high = first[static_cast<uint64_t>(two) >> 32];
    return static_cast<long long>(low | high << 32);
  };
  return _mm256_setr_epi64x(pair(_mm256_extract_epi64(index, 0)), pair(_mm256_extract_epi64(index, 1)),
                            pair(_mm256_extract_epi64(index, 2)), pair(_mm256_extract_epi64(index, 3)));
}

// dynamic_code of eight values, as 32-bit integers that still need saturation.
inline __m256i encode_eight(const DynamicMap& map, __m256 y) {
  const __m256i negative = map.zero_code ? _mm256_srai_epi32(_mm256_castps_si256(y), 31) : _mm256_setzero_si256();
  if (map.zero_code) y = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), y);
  const __m256i bits = _mm256_castps_si256(_mm256_max_ps(y, _mm256_set1_ps(DYNAMIC_SMALLEST)));
  const __m256i bucket = load_buckets(map.buckets, _mm256_srli_epi32(bits, 16));
  const __m256i last16 = _mm256_and_si256(bits, _mm256_set1_epi32(0xFFFF));
  const __m256i above = _mm256_cmpgt_epi32(_mm256_sub_epi32(last16, negative), _mm256_srli_epi32(bucket, 8));
  const __m256i found = _mm256_sub_epi32(_mm256_and_si256(bucket, _mm256_set1_epi32(0xFF)), above);
  const __m256i with_sign = _mm256_sub_epi32(_mm256_xor_si256(found, negative), negative);
  return _mm256_add_epi32(with_sign, _mm256_set1_epi32(map.zero_code));
}

inline void encode_map(const DynamicMap& map, const float* x, int64_t n, float inverse, uint8_t* codes) {
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i code[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
      code[j] = encode_eight(map, _mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * j), _mm256_set1_ps(inverse)));
    const __m256i low = _mm256_packs_epi32(code[0], code[1]);
    const __m256i high = _mm256_packs_epi32(code[2], code[3]);
    const __m256i in_lanes = _mm256_packus_epi16(low, high);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i), _mm256_permutevar8x32_epi32(in_lanes, order));
  }
  encode_scalar(map, x + i, n - i, inverse, codes + i);
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
