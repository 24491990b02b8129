// The affine grid of a block and the roundings, operation by operation: the results are promised bit for bit, so
// nothing here may be contracted, reassociated or approximated.
#pragma once
#include "portable.h"

namespace kpop {

// How the grid of a block follows from its range: the published rule, or the one whose codes need no clipping.
struct AffineRule {
  float steps;
  bool nearest_zero_point;
};

constexpr AffineRule UNBIASED_RULE = {254.0f, false};
constexpr AffineRule PAPER_RULE = {255.0f, true};

// Values are (code - zero_point) * scale. The scale of a block without a grid is 0 (all zero) or NaN (poisoned).
struct AffineGrid {
  float scale;
  float inverse;
  int zero_point;
};

// The grid of values between lo <= 0 and hi >= 0, which are not subnormal; NaN and Inf poison it.
KPOP_HOST_DEVICE AffineGrid affine_grid(float lo, float hi, AffineRule rule) {
  const float scale = rounded_quotient(rounded_sum(hi, -lo), rule.steps);
  if (!(bits_of(scale) < INFINITY_BITS)) return {float_of(NAN_BITS), 0.0f, 0};
  if (scale < SMALLEST_NORMAL) return {0.0f, 0.0f, 0};
  const float inverse = rounded_quotient(1.0f, scale);
  const float ratio = flush_subnormal(rounded_product(-lo, inverse));
  const float zero_point = rule.nearest_zero_point ? floorf(rounded_sum(ratio, 0.5f)) : ceilf(ratio);
  return {scale, inverse, static_cast<int>(zero_point < 255.0f ? zero_point : 255.0f)};
}

KPOP_HOST_DEVICE int round_nearest(float y) { return static_cast<int>(floorf(y + 0.5f)); }

// The fraction of a tiny negative y rounds to 1, and its threshold 65536 is above every random number.
KPOP_HOST_DEVICE int round_stochastic(float y, uint32_t random) {
  const float floor = floorf(y);
  const int threshold = static_cast<int>((y - floor) * 65536.0f);
  return static_cast<int>(floor) + (static_cast<int>(random) < threshold);
}

KPOP_HOST_DEVICE uint8_t saturate_code(int code) {
  return static_cast<uint8_t>(code < 0 ? 0 : code > 255 ? 255 : code);
}

// Adds 16 random bits below those that stay. Values beyond the largest bfloat16 and Inf are cut, NaN stays quiet.
KPOP_HOST_DEVICE uint16_t bfloat16_stochastic(uint32_t bits, uint32_t random) {
  const uint32_t magnitude = bits & MAGNITUDE_BITS;
  const uint32_t rounded = bits + (magnitude > 0x7F7F0000 ? 0 : random);
  return static_cast<uint16_t>(rounded >> 16 | (magnitude > INFINITY_BITS ? 0x0040 : 0));
}

}  // namespace kpop
