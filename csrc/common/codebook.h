// The dynamic map: seven decades of magnitude in one byte, and the exact search for the nearest of its values.
#pragma once
#include "portable.h"

namespace kpop {

constexpr int DYNAMIC_DECADES = 7;
constexpr int DYNAMIC_LARGEST_NEGATIVE = 127;  // magnitudes of the signed map below 0; above it there is 1 too

// The reciprocal of an absmax from here on is subnormal: such blocks are multiplied by DYNAMIC_PRESCALE first.
constexpr float DYNAMIC_PRESCALE_FROM = 0x1p126f;
constexpr float DYNAMIC_PRESCALE = 0x1p-8f;

// Values up to 1 whose float32 bits agree but for the last 16 form a bucket; none has more than one midpoint.
// Everything below DYNAMIC_SMALLEST lies below the first midpoint and shares a bucket.
constexpr float DYNAMIC_SMALLEST = 0x1p-24f;
constexpr uint32_t DYNAMIC_BUCKET_FIRST = 103 << 7;
constexpr int DYNAMIC_BUCKETS = ((127 - 103) << 7) + 1;

// A bucket: the number of midpoints below it in the low byte, above it the last 16 bits of its own midpoint.
constexpr uint32_t DYNAMIC_NO_MIDPOINT = 0x1FFFF;

struct alignas(64) DynamicMap {
  float values[256];  // by code, ascending
  uint16_t low_halves[256], high_halves[256];  // of the bits of the values
  float midpoints[255];  // of neighbouring magnitudes, ascending; the signed map has 128
  int magnitudes;        // number of values that are not negative, 0 among them
  int zero_code;         // the code of 0, which is also the number of negative values
  uint32_t buckets[DYNAMIC_BUCKETS];
};

// Border j of a decade's `parts` equal parts, in units of the decade: counted from the nearer end, with one rounding,
// because product and sum are exact in double.
KPOP_HOST_DEVICE float dynamic_border(int j, int parts) {
  const double step = static_cast<double>((1.0f - 0.1f) / static_cast<float>(parts));
  return static_cast<float>(2 * j < parts ? static_cast<double>(0.1f) + step * j : 1.0 - step * (parts - j));
}

KPOP_HOST_DEVICE float dynamic_value(int decade, int j, int parts) {
  const float powers[DYNAMIC_DECADES] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  return (dynamic_border(j, parts) + dynamic_border(j + 1, parts)) * 0.5f * powers[decade];
}

// The number of midpoints below a magnitude, at most 1 but for rounding: the index of the nearest value, the lower of
// two equally near ones. With `count_tie` the higher one.
KPOP_HOST_DEVICE int dynamic_index(const uint32_t* buckets, float magnitude, bool count_tie) {
  const uint32_t bits = bits_of(magnitude < DYNAMIC_SMALLEST ? DYNAMIC_SMALLEST : magnitude);
  const uint32_t bucket = buckets[(bits >> 16) - DYNAMIC_BUCKET_FIRST];
  return static_cast<int>((bucket & 0xFF) + ((bits & 0xFFFF) + count_tie > bucket >> 8));
}

// The code of y = x / absmax. A tie goes to the lower code, for negative y that of the larger magnitude.
KPOP_HOST_DEVICE uint8_t dynamic_code(const uint32_t* buckets, int zero_code, float y) {
  if (zero_code == 0) return static_cast<uint8_t>(y > 0.0f ? dynamic_index(buckets, y, false) : 0);
  if (y >= 0.0f) return static_cast<uint8_t>(zero_code + dynamic_index(buckets, y, false));
  const int index = dynamic_index(buckets, -y, true);
  return static_cast<uint8_t>(index < DYNAMIC_LARGEST_NEGATIVE ? zero_code - index : 0);
}

// The maps are built on first use.
const DynamicMap& dynamic_map(bool is_signed);

}  // namespace kpop
