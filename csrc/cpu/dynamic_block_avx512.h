// The dynamic map from registers: values are looked up by halves of their bits.
#pragma once
#include "intrinsics.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// 256 16-bit numbers, looked up 64 at a time by the low six bits of an index and chosen by the other two.
struct HalfTable {
  __m512i part[8];
};

inline HalfTable half_table(const uint16_t* halves) {
  HalfTable table;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) table.part[i] = _mm512_load_si512(halves + 32 * i);
  return table;
}

inline __m512i look_up(const HalfTable& table, __m512i index) {
  const __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
  const __mmask32 bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
  const __m512i* part = table.part;
  const __m512i low = _mm512_mask_blend_epi16(bit6, _mm512_permutex2var_epi16(part[0], index, part[1]),
                                              _mm512_permutex2var_epi16(part[2], index, part[3]));
  const __m512i high = _mm512_mask_blend_epi16(bit6, _mm512_permutex2var_epi16(part[4], index, part[5]),
                                               _mm512_permutex2var_epi16(part[6], index, part[7]));
  return _mm512_mask_blend_epi16(bit7, low, high);
}

inline void restore_map(const DynamicMap& map, const uint8_t* codes, int64_t n, float absmax, float* out) {
  int64_t i = 0;
  if (!(absmax < PRODUCTS_SUBNORMAL_BELOW)) {
    const HalfTable low_halves = half_table(map.low_halves);
    const HalfTable high_halves = half_table(map.high_halves);
    const __m512 factor = _mm512_set1_ps(absmax);
    // Unpacking works within lanes of 128 bits; this order of the codes leaves its results in order.
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (; i + 32 <= n; i += 32) {
      const __m256i loaded = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i));
      const __m512i index = _mm512_cvtepu8_epi16(_mm256_permutevar8x32_epi32(loaded, order));
      const __m512i low = look_up(low_halves, index);
      const __m512i high = look_up(high_halves, index);
      const __m512 first = _mm512_castsi512_ps(_mm512_unpacklo_epi16(low, high));
      const __m512 second = _mm512_castsi512_ps(_mm512_unpackhi_epi16(low, high));
      _mm512_storeu_ps(out + i, _mm512_mul_ps(first, factor));
      _mm512_storeu_ps(out + i + 16, _mm512_mul_ps(second, factor));
    }
  }
  restore_scalar(map, codes + i, n - i, absmax, out + i);
}

// dynamic_code of sixteen values, by a gather of their buckets; needs saturation.
inline __m512i encode_sixteen(const DynamicMap& map, __m512 y) {
  const __m512i negative = map.zero_code ? _mm512_srai_epi32(_mm512_castps_si512(y), 31) : _mm512_setzero_si512();
  if (map.zero_code) y = _mm512_abs_ps(y);
  const __m512i bits = _mm512_castps_si512(_mm512_max_ps(y, _mm512_set1_ps(0x1p-24f)));
  const __m512i index = _mm512_sub_epi32(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(DYNAMIC_BUCKET_FIRST));
  const __m512i bucket = _mm512_i32gather_epi32(index, map.buckets, 4);
  const __m512i last16 = _mm512_and_si512(bits, _mm512_set1_epi32(0xFFFF));
  const __mmask16 above =
      _mm512_cmpgt_epi32_mask(_mm512_sub_epi32(last16, negative), _mm512_srli_epi32(bucket, 8));
  __m512i found = _mm512_and_si512(bucket, _mm512_set1_epi32(0xFF));
  found = _mm512_mask_add_epi32(found, above, found, _mm512_set1_epi32(1));
  const __m512i with_sign = _mm512_sub_epi32(_mm512_xor_si512(found, negative), negative);
  return _mm512_add_epi32(with_sign, _mm512_set1_epi32(map.zero_code));
}

inline void encode_map(const DynamicMap& map, const float* x, int64_t n, float inverse, uint8_t* codes) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 y = _mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(inverse));
    const __m512i code = _mm512_max_epi32(encode_sixteen(map, y), _mm512_setzero_si512());
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), _mm512_cvtusepi32_epi8(code));
  }
  encode_scalar(map, x + i, n - i, inverse, codes + i);
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
