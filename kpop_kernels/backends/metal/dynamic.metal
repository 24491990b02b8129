// Blocks on the dynamic map: value = map[code] absmax.
#include "blocks.metal"

// Values up to 1 whose float bits agree but for the last 16 share a bucket, all below 2^-24 share the first.
// A bucket has at most one midpoint of neighbouring values of the map.
constant constexpr uint kFirstBucket = 103u << 7;
constant constexpr uint kLargestNegative = 127;  // values of the signed map below 0, and the code of 0

// absmax NaN and absmax 0 have inverse 0: all codes are that of 0.
struct DynamicScale {
  uint absmax;  // bits
  float prescale, inverse;
};

static inline uint dynamic_range(thread const uint* bits) {
  uint range = 0u;
  for (uint i = 0u; i < kElements; ++i) {
    range = max(range, magnitude(flushed(bits[i])));
  }
  return range;
}

static inline DynamicScale dynamic_scale(uint range) {
  DynamicScale scale;
  scale.absmax = is_finite(range) ? range : kQuietNan;
  const float absmax = as_type<float>(is_finite(range) ? range : 0u);
  // Above 2^126 the reciprocal would be subnormal. Powers of two are exact.
  scale.prescale = absmax >= 0x1p126f ? 0x1p-8f : 1.0f;
  scale.inverse = as_type<uint>(absmax) == 0u ? 0.0f : reciprocal_rounded(absmax * scale.prescale);
  return scale;
}

// The number of midpoints below the magnitude; with `count_tie` also one that is equal.
static inline uint midpoints_below(device const uint* buckets, float size, bool count_tie) {
  const uint bits = as_type<uint>(max(size, 0x1p-24f));
  // The midpoint's last 16 bits, or more than these where there is none, above the number of those before.
  const uint bucket = buckets[(bits >> 16) - kFirstBucket];
  return (bucket & 0xffu) + ((bits & 0xffffu) + (count_tie ? 1u : 0u) > bucket >> 8 ? 1u : 0u);
}

// A tie goes to the lower code, which for negative y is that of the larger magnitude.
static inline uchar dynamic_code(device const uint* buckets, float y, bool is_signed) {
  if (!is_signed) return uchar(y > 0.0f ? midpoints_below(buckets, y, false) : 0u);
  if (y >= 0.0f) return uchar(kLargestNegative + midpoints_below(buckets, y, false));
  return uchar(kLargestNegative - min(midpoints_below(buckets, -y, true), kLargestNegative));
}

static inline void store_dynamic(thread const uint* bits, DynamicScale scale, bool is_signed,
                                 device const uint* buckets, Share share, float minus_zero,
                                 device uchar* codes) {
  const bool empty = as_type<uint>(scale.inverse) == 0u;
  for (uint i = 0u; i < kElements; ++i) {
    if (i >= share.count) continue;
    const float value = as_type<float>(empty ? 0u : flushed(bits[i])) * scale.prescale;
    const float y = multiply_rounded(value, scale.inverse, minus_zero);
    codes[share.first + i] = dynamic_code(buckets, y, is_signed);
  }
}

static inline void store_absmax(DynamicScale scale, Share share, device float* absmax) {
  if (leads(share)) store(absmax, share.block, scale.absmax);
}

// The bits of a thread's values.
static inline void restore_dynamic(device const uchar* codes, device const float* absmax,
                                   device const float* map, Share share, float minus_zero,
                                   thread uint* bits) {
  for (uint i = 0u; i < kElements; ++i) {
    bits[i] = 0u;
    if (i >= share.count) continue;
    const uint scale = float_bits(absmax[share.block]);
    const float value = multiply_rounded(map[codes[share.first + i]], as_type<float>(scale), minus_zero);
    bits[i] = is_nan(scale) ? kQuietNan : flushed(as_type<uint>(value));
  }
}
