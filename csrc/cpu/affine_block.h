// One block on the affine grid. Loops are written for the compiler to vectorize.
#pragma once
#include "common/rounding.h"
#include "kernels.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// The largest and the smallest value with 0 among them. Bit patterns order like the values: as signed integers those
// of positive values, as unsigned ones those of negative values. NaN and Inf come out as what they are.
struct Range {
  float lo, hi;
};

inline Range range_of(const float* x, int64_t n) {
  int32_t hi = 0;
  uint32_t lo = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = bits_of(x[i]);
    hi = static_cast<int32_t>(bits) > hi ? static_cast<int32_t>(bits) : hi;
    lo = bits > lo ? bits : lo;
  }
  const bool any_negative = lo > MAGNITUDE_BITS;
  return {any_negative ? flush_subnormal(float_of(lo)) : 0.0f, flush_subnormal(float_of(static_cast<uint32_t>(hi)))};
}

inline void encode_nearest(const float* __restrict x, int64_t n, const AffineGrid& grid, uint8_t* __restrict codes) {
  const float inverse = grid.inverse;
  const int zero_point = grid.zero_point;
  for (int64_t i = 0; i < n; ++i) codes[i] = saturate_code(round_nearest(x[i] * inverse) + zero_point);
}

inline void encode_stochastic(const float* __restrict x, int64_t n, const AffineGrid& grid,
                              const uint16_t* __restrict random, uint8_t* __restrict codes) {
  const float inverse = grid.inverse;
  const int zero_point = grid.zero_point;
  for (int64_t i = 0; i < n; ++i)
    codes[i] = saturate_code(round_stochastic(x[i] * inverse, random[i]) + zero_point);
}

// Above this scale a subnormal value is less than 2^-26 steps, which rounds like 0 whatever its sign.
constexpr float SUBNORMALS_MATTER_BELOW = 0x1p-100f;

// Writes the codes, scale and zero point of block number `block`, nearest without random numbers.
inline void quantize_affine(const float* x, int64_t n, const uint16_t* random, AffineRule rule, AffineCodes out,
                            int64_t block, int64_t first) {
  const Range range = range_of(x, n);
  const AffineGrid grid = affine_grid(range.lo, range.hi, rule);
  uint8_t* codes = out.codes + first;
  out.scales[block] = grid.scale;
  out.zero_points[block] = static_cast<uint8_t>(grid.zero_point);
  if (!(grid.scale > 0.0f)) {
    memset(codes, 0, static_cast<size_t>(n));
    return;
  }
  float flushed[LARGEST_BLOCK];
  if (grid.scale < SUBNORMALS_MATTER_BELOW) {
    for (int64_t i = 0; i < n; ++i) flushed[i] = flush_subnormal(x[i]);
    x = flushed;
  }
  if (random)
    encode_stochastic(x, n, grid, random, codes);
  else
    encode_nearest(x, n, grid, codes);
}

inline void restore_affine(AffineCodes in, int64_t block, int64_t first, int64_t n, float* __restrict out) {
  const uint8_t* codes = in.codes + first;
  const float scale = in.scales[block];
  const int zero_point = in.zero_points[block];
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(codes[i] - zero_point) * scale;
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
