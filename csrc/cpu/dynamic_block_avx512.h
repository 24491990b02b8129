// The dynamic map from registers: values are looked up by halves of their bits, codes are found by lines.
#pragma once
#include "dynamic_lines.h"
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

// dynamic_index of sixteen magnitudes, by a gather of their buckets.
inline __m512i index_by_bucket(const DynamicMap& map, __m512 magnitude, __m512i count_tie) {
  const __m512i bits = _mm512_castps_si512(magnitude);
  const __m512i index = _mm512_sub_epi32(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(DYNAMIC_BUCKET_FIRST));
  const __m512i bucket = _mm512_i32gather_epi32(index, map.buckets, 4);
  const __m512i last16 = _mm512_add_epi32(_mm512_and_si512(bits, _mm512_set1_epi32(0xFFFF)), count_tie);
  const __mmask16 above = _mm512_cmpgt_epi32_mask(last16, _mm512_srli_epi32(bucket, 8));
  const __m512i below = _mm512_and_si512(bucket, _mm512_set1_epi32(0xFF));
  return _mm512_mask_add_epi32(below, above, below, _mm512_set1_epi32(1));
}

struct Lines {
  __m512 threshold[2], slope, offset, cap;
  __m512i region[2];
};

inline Lines load_lines(const DynamicLines& lines) {
  return {{_mm512_load_ps(lines.threshold), _mm512_load_ps(lines.threshold + 16)},
          _mm512_load_ps(lines.slope),
          _mm512_load_ps(lines.offset),
          _mm512_load_ps(lines.cap),
          {_mm512_load_si512(lines.region), _mm512_load_si512(lines.region + 16)}};
}

// Magnitudes of sixteen values, and 1 in the lanes where a tie goes to the larger index: those of negative values.
struct Magnitudes {
  __m512 value;
  __m512i ties;
  __mmask16 negative;
};

template <bool is_signed>
inline Magnitudes magnitudes(const float* x, __m512 inverse) {
  const __m512 y = _mm512_mul_ps(_mm512_loadu_ps(x), inverse);
  const __m512 smallest = _mm512_set1_ps(DYNAMIC_SMALLEST);
  if (!is_signed) return {_mm512_max_ps(y, smallest), _mm512_setzero_si512(), 0};
  const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(y));
  return {_mm512_max_ps(_mm512_abs_ps(y), smallest), _mm512_maskz_set1_epi32(negative, 1), negative};
}

// dynamic_index of sixteen magnitudes, by their lines. Lanes that are too near a midpoint to tell are added to `near`.
inline __m512i index_by_line(const Lines& lines, __m512 magnitude, __m512i ties, __mmask16& near) {
  const __m512i bits = _mm512_castps_si512(magnitude);
  const __m512i exponent = _mm512_srli_epi32(bits, 23);
  const __m512 threshold = _mm512_permutex2var_ps(lines.threshold[0], exponent, lines.threshold[1]);
  __m512i region = _mm512_permutex2var_epi32(lines.region[0], exponent, lines.region[1]);
  // Positive values order like their bits.
  const __mmask16 beyond = _mm512_cmpgt_epi32_mask(_mm512_add_epi32(bits, ties), _mm512_castps_si512(threshold));
  region = _mm512_mask_add_epi32(region, beyond, region, _mm512_set1_epi32(1));
  const __m512 line = _mm512_fmadd_ps(magnitude, _mm512_permutexvar_ps(region, lines.slope),
                                      _mm512_permutexvar_ps(region, lines.offset));
  const __m512 height = _mm512_min_ps(line, _mm512_permutexvar_ps(region, lines.cap));
  const __m512 fraction = _mm512_reduce_ps(height, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  near |= _mm512_cmp_ps_mask(fraction, _mm512_set1_ps(2 * LINE_ERROR), _CMP_LT_OQ);
  return _mm512_cvttps_epi32(height);
}

// The codes of sixteen values before saturation.
template <bool is_signed>
inline __m512i code_of_index(__m512i index, __mmask16 negative) {
  if (!is_signed) return index;
  const __m512i with_sign = _mm512_mask_sub_epi32(index, negative, _mm512_setzero_si512(), index);
  return _mm512_add_epi32(with_sign, _mm512_set1_epi32(DYNAMIC_LARGEST_NEGATIVE));
}

template <bool is_signed, int vectors>
inline void encode_vectors(const DynamicMap& map, const Lines& lines, const float* x, __m512 inverse, __m512i* codes) {
  Magnitudes m[vectors];
  __mmask16 near = 0;
#pragma GCC unroll 4
  for (int j = 0; j < vectors; ++j) {
    m[j] = magnitudes<is_signed>(x + 16 * j, inverse);
    codes[j] = code_of_index<is_signed>(index_by_line(lines, m[j].value, m[j].ties, near), m[j].negative);
  }
  if (__builtin_expect(near == 0, 1)) return;
  for (int j = 0; j < vectors; ++j)
    codes[j] = code_of_index<is_signed>(index_by_bucket(map, m[j].value, m[j].ties), m[j].negative);
}

template <bool is_signed>
inline void encode(const DynamicMap& map, const float* x, int64_t n, float inverse_absmax, uint8_t* codes) {
  const Lines lines = load_lines(dynamic_lines(map));
  const __m512 inverse = _mm512_set1_ps(inverse_absmax);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    __m512i code[4];
    encode_vectors<is_signed, 4>(map, lines, x + i, inverse, code);
    const __m512i in_lanes =
        _mm512_packus_epi16(_mm512_packs_epi32(code[0], code[1]), _mm512_packs_epi32(code[2], code[3]));
    _mm512_storeu_si512(codes + i, _mm512_permutexvar_epi32(order, in_lanes));
  }
  for (; i + 16 <= n; i += 16) {
    __m512i code;
    encode_vectors<is_signed, 1>(map, lines, x + i, inverse, &code);
    code = _mm512_max_epi32(code, _mm512_setzero_si512());
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), _mm512_cvtusepi32_epi8(code));
  }
  encode_scalar(map, x + i, n - i, inverse_absmax, codes + i);
}

inline void encode_map(const DynamicMap& map, const float* x, int64_t n, float inverse, uint8_t* codes) {
  if (map.zero_code)
    encode<true>(map, x, n, inverse, codes);
  else
    encode<false>(map, x, n, inverse, codes);
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
