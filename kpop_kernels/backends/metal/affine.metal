// Blocks on an affine grid: value = scale (code - zero point).
#include "blocks.metal"
#include "random.metal"

constant constexpr uint kUnbiased = 254;  // steps of the grid; 255 is the published rule

// Scale NaN and scale 0 have inverse 0: all codes are 0.
struct AffineGrid {
  uint scale;  // bits
  float inverse;
  int zero_point;
};

// The magnitudes of the lowest and the highest value, 0 among them. As integers they order like the values;
// NaN is the largest.
static inline uint2 affine_range(thread const uint* bits) {
  uint2 range = uint2(0u);
  for (uint i = 0u; i < kElements; ++i) {
    const uint size = magnitude(flushed(bits[i]));
    const bool negative = (bits[i] & kSign) != 0u;
    range = max(range, uint2(negative ? size : 0u, negative ? 0u : size));
  }
  return range;
}

static inline AffineGrid affine_grid(uint2 range, uint steps, float minus_zero) {
  const bool finite = is_finite(range.x) && is_finite(range.y);
  const float below = as_type<float>(finite ? range.x : 0u), above = as_type<float>(finite ? range.y : 0u);
  const bool poisoned = !finite || 0.5f * below + 0.5f * above >= 0x1p127f;  // or the sum overflows
  const float scale = poisoned ? 0.0f : divide_rounded(below + above, steps);
  AffineGrid grid;
  grid.scale = poisoned ? kQuietNan : as_type<uint>(scale);
  grid.inverse = as_type<uint>(scale) == 0u ? 0.0f : reciprocal_rounded(scale);
  const uint ratio = flushed(as_type<uint>(multiply_rounded(below, grid.inverse, minus_zero)));
  const float zero_point =
      steps == kUnbiased ? ceil(as_type<float>(ratio)) : floor(as_type<float>(ratio) + 0.5f);
  grid.zero_point = int(min(zero_point, 255.0f));
  return grid;
}

static inline int nearest_step(float y) {
  return int(floor(y + 0.5f));
}
static inline int stochastic_step(float y, uint random) {
  return int(floor(y)) + (random < fraction16(y) ? 1 : 0);
}

static inline uchar affine_code(int step, AffineGrid grid) {
  return uchar(clamp(step + grid.zero_point, 0, 255));
}

static inline void store_grid(AffineGrid grid, Share share, device float* scales, device uchar* zero_points) {
  if (!leads(share)) return;
  store(scales, share.block, grid.scale);
  zero_points[share.block] = uchar(grid.zero_point);
}

// `words` are the thread's random bits, `nearest` says that they are not used.
static inline void store_affine(thread const uint* bits, uint4 words, bool nearest, AffineGrid grid,
                                Share share, float minus_zero, device uchar* codes) {
  const bool empty = as_type<uint>(grid.inverse) == 0u;
  for (uint i = 0u; i < kElements; ++i) {
    if (i >= share.count) continue;
    const float value = as_type<float>(empty ? 0u : flushed(bits[i]));
    const float y = multiply_rounded(value, grid.inverse, minus_zero);
    const int step = nearest ? nearest_step(y) : stochastic_step(y, random16(words, i));
    codes[share.first + i] = empty ? uchar(0) : affine_code(step, grid);
  }
}

// The bits of a thread's values.
static inline void restore_affine(device const uchar* codes, device const float* scales,
                                  device const uchar* zero_points, Share share, float minus_zero,
                                  thread uint* bits) {
  for (uint i = 0u; i < kElements; ++i) {
    bits[i] = 0u;
    if (i >= share.count) continue;
    const uint scale = float_bits(scales[share.block]);
    const int step = int(codes[share.first + i]) - int(zero_points[share.block]);
    const float value = multiply_rounded(float(step), as_type<float>(scale), minus_zero);
    bits[i] = is_nan(scale) ? kQuietNan : as_type<uint>(value);
  }
}
