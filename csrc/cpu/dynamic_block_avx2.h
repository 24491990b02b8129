// The dynamic map for eight values at a time: restored by loads one by one, which are faster than gather instructions,
// codes found by lines.
#pragma once
#include "dynamic_lines.h"
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

// dynamic_index of eight magnitudes; a tie goes to the larger index where `ties` is -1.
inline __m256i index_by_bucket(const DynamicMap& map, __m256i bits, __m256i ties) {
  const __m256i bucket = load_buckets(map.buckets, _mm256_srli_epi32(bits, 16));
  const __m256i last16 = _mm256_and_si256(bits, _mm256_set1_epi32(0xFFFF));
  const __m256i above = _mm256_cmpgt_epi32(_mm256_sub_epi32(last16, ties), _mm256_srli_epi32(bucket, 8));
  return _mm256_sub_epi32(_mm256_and_si256(bucket, _mm256_set1_epi32(0xFF)), above);
}

// A magnitude's bits are nearly linear in its logarithm. One unit of CELLS_OF_BITS * bits + FIRST_CELL is a decade, and
// the cells between its integers, which begin at about 0.5, 0.05 ... 5e-7, hold one border between regions each.
constexpr float CELLS_OF_BITS = 0x1p-23f * 0.30103f;
constexpr float FIRST_CELL = 7.3f - 127 * 0.30103f;

// The same by the lines of the regions, which are 0 to 8 where the tables in registers have eight entries: the line of
// region 7 ends one below the only index of region 8. Lanes too near a midpoint to tell are marked in `near`.
inline __m256i index_by_line(const DynamicLines& lines, __m256i bits, __m256i ties, __m256& near) {
  const __m256 magnitude = _mm256_castsi256_ps(bits);
  const __m256 logarithm =
      _mm256_fmadd_ps(_mm256_cvtepi32_ps(bits), _mm256_set1_ps(CELLS_OF_BITS), _mm256_set1_ps(FIRST_CELL));
  const __m256i cell = _mm256_cvttps_epi32(logarithm);
  const __m256i border = _mm256_castps_si256(_mm256_permutevar8x32_ps(_mm256_loadu_ps(lines.border), cell));
  const __m256i above = _mm256_cmpgt_epi32(_mm256_sub_epi32(bits, ties), border);
  const __m256i last = _mm256_set1_epi32(DYNAMIC_DECADES);
  const __m256i beyond = _mm256_and_si256(above, _mm256_cmpeq_epi32(cell, last));
  const __m256i region = _mm256_min_epi32(_mm256_sub_epi32(cell, above), last);
  const __m256 line = _mm256_fmadd_ps(magnitude, _mm256_permutevar8x32_ps(_mm256_load_ps(lines.slope), region),
                                      _mm256_permutevar8x32_ps(_mm256_load_ps(lines.offset), region));
  const __m256 height = _mm256_min_ps(line, _mm256_permutevar8x32_ps(_mm256_load_ps(lines.cap), region));
  const __m256i index = _mm256_cvttps_epi32(height);
  const __m256 fraction = _mm256_sub_ps(height, _mm256_cvtepi32_ps(index));
  near = _mm256_or_ps(near, _mm256_cmp_ps(fraction, _mm256_set1_ps(2 * LINE_ERROR), _CMP_LT_OQ));
  return _mm256_sub_epi32(index, beyond);
}

// The codes of eight values before saturation.
template <bool is_signed>
inline __m256i code_of_index(__m256i index, __m256i negative) {
  if (!is_signed) return index;
  const __m256i with_sign = _mm256_sub_epi32(_mm256_xor_si256(index, negative), negative);
  return _mm256_add_epi32(with_sign, _mm256_set1_epi32(DYNAMIC_LARGEST_NEGATIVE));
}

template <bool is_signed>
inline void encode(const DynamicMap& map, const float* x, int64_t n, float inverse, uint8_t* codes) {
  const DynamicLines& lines = dynamic_lines(map);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i code[4], bits[4], negative[4];
    __m256 near = _mm256_setzero_ps();
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      __m256 y = _mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * j), _mm256_set1_ps(inverse));
      negative[j] = is_signed ? _mm256_srai_epi32(_mm256_castps_si256(y), 31) : _mm256_setzero_si256();
      if (is_signed) y = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), y);
      bits[j] = _mm256_castps_si256(_mm256_max_ps(y, _mm256_set1_ps(DYNAMIC_SMALLEST)));
      code[j] = code_of_index<is_signed>(index_by_line(lines, bits[j], negative[j], near), negative[j]);
    }
    if (__builtin_expect(_mm256_movemask_ps(near) != 0, 0))
      for (int j = 0; j < 4; ++j)
        code[j] = code_of_index<is_signed>(index_by_bucket(map, bits[j], negative[j]), negative[j]);
    const __m256i low = _mm256_packs_epi32(code[0], code[1]);
    const __m256i high = _mm256_packs_epi32(code[2], code[3]);
    const __m256i in_lanes = _mm256_packus_epi16(low, high);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i), _mm256_permutevar8x32_epi32(in_lanes, order));
  }
  encode_scalar(map, x + i, n - i, inverse, codes + i);
}

inline void encode_map(const DynamicMap& map, const float* x, int64_t n, float inverse, uint8_t* codes) {
  if (map.zero_code)
    encode<true>(map, x, n, inverse, codes);
  else
    encode<false>(map, x, n, inverse, codes);
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
