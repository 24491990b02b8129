// Blocks on the dynamic map: common/codebook.h with its tables in shared memory.
#pragma once

#include "../common/codebook.h"
#include "elements.cuh"
#include "ptx.cuh"

namespace kpop {

struct DynamicTables {
  float values[256];
  uint32_t buckets[DYNAMIC_BUCKETS];
};

// Called by all threads of the block, which wait for each other before they use what was copied.
template <int COUNT, typename T>
__device__ __forceinline__ void copy_table(T (&shared)[COUNT], const T* table, int threads = THREADS) {
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < COUNT; i += threads) shared[i] = table[i];
}

// What turns values into y = x / absmax; the inverse of a block of zeros or with NaN or Inf is 0.
struct DynamicScale {
  float absmax, prescale, inverse;
};

__device__ __forceinline__ DynamicScale dynamic_scale(uint32_t peak) {
  if (!(peak < INFINITY_BITS)) return {__uint_as_float(NAN_BITS), 0.0f, 0.0f};
  if (peak < SMALLEST_NORMAL_BITS) return {0.0f, 0.0f, 0.0f};
  const float absmax = __uint_as_float(peak);
  const float prescale = absmax >= DYNAMIC_PRESCALE_FROM ? DYNAMIC_PRESCALE : 1.0f;
  return {absmax, prescale, __fdiv_rn(1.0f, __fmul_rn(absmax, prescale))};
}

// The codes of a group. Subnormal values are flushed by the products.
template <bool SIGNED>
__device__ __forceinline__ Codes encode_dynamic(const float (&values)[GROUP], const DynamicScale& scale,
                                                const uint32_t* buckets) {
  constexpr int zero_code = SIGNED ? DYNAMIC_LARGEST_NEGATIVE : 0;
  constexpr uint32_t zero_codes = 0x01010101u * zero_code;
  if (scale.inverse == 0.0f) return {zero_codes, zero_codes};
  uint32_t words[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < GROUP; ++i) {
    const float y = multiply_flushed(multiply_flushed(values[i], scale.prescale), scale.inverse);
    words[i / 4] |= uint32_t{dynamic_code(buckets, zero_code, y)} << (8 * (i % 4));
  }
  return {words[0], words[1]};
}

// Writes the codes and absmax of a tile.
template <bool SIGNED>
__device__ __forceinline__ void quantize_dynamic(const float (&values)[ROWS][GROUP], const Tile& tile,
                                                 const uint32_t* buckets, DynamicCodes out) {
  uint32_t peaks[ROWS];
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    peaks[row] = 0;
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      peaks[row] = max(peaks[row], __float_as_uint(values[row][i]) & MAGNITUDE_BITS);
  }
  tile.max_over_blocks(peaks);
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    const DynamicScale scale = dynamic_scale(peaks[row]);
    store_codes(encode_dynamic<SIGNED>(values[row], scale, buckets), out.codes, tile, row);
    if (tile.begins_block(row)) out.absmax[tile.block(row)] = scale.absmax;
  }
}

__device__ __forceinline__ void restore_dynamic(float (&restored)[ROWS][GROUP], DynamicCodes in, const float* values,
                                                const Tile& tile) {
  Codes codes[ROWS];
  load_codes(codes, in.codes, tile, {});
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    const float absmax = tile.holds(row, 0) ? in.absmax[tile.block(row)] : 0.0f;
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      restored[row][i] = flush_subnormal(__fmul_rn(values[code_at(codes[row], i)], absmax));
  }
}

}  // namespace kpop
