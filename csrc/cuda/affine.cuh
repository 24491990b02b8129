// Blocks on the affine grid: common/rounding.h in forms that need no conversions between integers and floats, which
// devices do slowly.
#pragma once

#include "../common/rounding.h"
#include "elements.cuh"
#include "ptx.cuh"
#include "random16.cuh"

namespace kpop {

// Added to a float below 2^22 and rounded down, this leaves its floor in the low bits.
constexpr float FLOOR_SHIFT = 12582912.0f;  // 1.5 * 2^23
constexpr int FLOOR_SHIFT_BITS = 0x4B400000;

// An integer of up to 23 bits or-ed to these bits is that integer above 2^23.
constexpr uint32_t INTEGER_BITS = 0x4B000000;

// The last place of a float between 128 and 256 is 2^-16.
constexpr float THRESHOLD_SHIFT = 128.0f;
constexpr uint32_t THRESHOLD_SHIFT_BITS = 0x43000000;

// The ends of a group's values and 0 as bits: those of positive values order like signed integers, those of negative
// ones like unsigned integers. NaN and Inf come out as what they are.
struct Ends {
  uint32_t hi, lo;
};

__device__ __forceinline__ Ends ends_of(const float (&values)[GROUP]) {
  int hi = 0;
  uint32_t lo = 0;
#pragma unroll
  for (int i = 0; i < GROUP; ++i) {
    hi = max(hi, __float_as_int(values[i]));
    lo = max(lo, __float_as_uint(values[i]));
  }
  return {static_cast<uint32_t>(hi), lo};
}

__device__ __forceinline__ AffineGrid grid_between(Ends ends, AffineRule rule) {
  const float lo = ends.lo > MAGNITUDE_BITS ? flush_subnormal(__uint_as_float(ends.lo)) : 0.0f;
  return affine_grid(lo, flush_subnormal(__uint_as_float(ends.hi)), rule);
}

// The grids of each row's block.
__device__ __forceinline__ void affine_grids(AffineGrid (&grids)[ROWS], const float (&values)[ROWS][GROUP],
                                             const Tile& tile, AffineRule rule) {
  uint32_t hi[ROWS], lo[ROWS];
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    const Ends ends = ends_of(values[row]);
    hi[row] = ends.hi;
    lo[row] = ends.lo;
  }
  tile.max_over_blocks(hi);
  tile.max_over_blocks(lo);
#pragma unroll
  for (int row = 0; row < ROWS; ++row) grids[row] = grid_between({hi[row], lo[row]}, rule);
}

// floor(y) + [random < 2^16 (y - floor(y))] above FLOOR_SHIFT_BITS, where `random` is half `half` of the word. The
// fraction of a tiny negative y rounds to 1, whose threshold is above every random number.
__device__ __forceinline__ int shifted_stochastic(float y, uint32_t word, int half) {
  const float shifted = __fadd_rd(y, FLOOR_SHIFT);
  const float fraction = __fadd_rn(y, -__fadd_rn(shifted, -FLOOR_SHIFT));
  const uint32_t threshold = __float_as_uint(__fadd_rz(fraction, THRESHOLD_SHIFT));
  const uint32_t random = __byte_perm(word, THRESHOLD_SHIFT_BITS, half ? 0x7632 : 0x7610);
  return __float_as_int(shifted) + (random < threshold);
}

__device__ __forceinline__ int shifted_nearest(float y) {
  return __float_as_int(__fadd_rd(__fadd_rn(y, 0.5f), FLOOR_SHIFT));
}

// The codes of a group. Subnormal values are flushed by the product.
template <bool STOCHASTIC>
__device__ __forceinline__ Codes encode_affine(const float (&values)[GROUP], float inverse, int zero_point,
                                               const Philox4& random) {
  if (inverse == 0.0f) return {0, 0};
  int codes[GROUP];
#pragma unroll
  for (int i = 0; i < GROUP; ++i) {
    const float y = multiply_flushed(values[i], inverse);
    const int shifted = STOCHASTIC ? shifted_stochastic(y, random.word[i / 2], i % 2) : shifted_nearest(y);
    codes[i] = shifted + (zero_point - FLOOR_SHIFT_BITS);
  }
  return {pack_saturated(codes[1], codes[0], pack_saturated(codes[3], codes[2], 0)),
          pack_saturated(codes[5], codes[4], pack_saturated(codes[7], codes[6], 0))};
}

// Writes the codes, scales and zero points of a tile.
template <bool STOCHASTIC>
__device__ __forceinline__ void quantize_affine(const float (&values)[ROWS][GROUP], const Tile& tile, AffineRule rule,
                                                const Random& random, AffineCodes out) {
  AffineGrid grids[ROWS];
  affine_grids(grids, values, tile, rule);
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    const Philox4 words = STOCHASTIC ? random.of_group(tile.first(row)) : Philox4{};
    const AffineGrid& grid = grids[row];
    store_codes(encode_affine<STOCHASTIC>(values[row], grid.inverse, grid.zero_point, words), out.codes, tile, row);
    if (!tile.begins_block(row)) continue;
    out.scales[tile.block(row)] = grid.scale;
    out.zero_points[tile.block(row)] = static_cast<uint8_t>(grid.zero_point);
  }
}

// (codes - zero_point) scale: the difference is exact, the product is rounded.
__device__ __forceinline__ void decode_affine(float (&values)[GROUP], Codes codes, float scale, uint32_t zero_point) {
  const float shifted_zero = __uint_as_float(INTEGER_BITS | zero_point);
#pragma unroll
  for (int i = 0; i < GROUP; ++i) {
    const uint32_t bits = __byte_perm(i < 4 ? codes.x : codes.y, INTEGER_BITS, 0x7440 | i % 4);
    values[i] = __fmul_rn(__fadd_rn(__uint_as_float(bits), -shifted_zero), scale);
  }
}

// Fills the groups of a tile; beyond the end of the tensor with 0, which changes no block's grid.
__device__ __forceinline__ void restore_affine(float (&values)[ROWS][GROUP], AffineCodes in, const Tile& tile) {
  float scales[ROWS];
  uint32_t zero_points[ROWS];
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    const bool inside = tile.holds(row, 0);
    scales[row] = inside ? in.scales[tile.block(row)] : 0.0f;
    zero_points[row] = inside ? in.zero_points[tile.block(row)] : 0;
  }
  Codes codes[ROWS];
  load_codes(codes, in.codes, tile, zero_points);
#pragma unroll
  for (int row = 0; row < ROWS; ++row) decode_affine(values[row], codes[row], scales[row], zero_points[row]);
}

}  // namespace kpop
