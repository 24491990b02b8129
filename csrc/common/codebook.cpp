#include "codebook.h"

namespace kpop {
namespace {

int midpoints_below(const DynamicMap& map, float magnitude) {
  int count = 0;
  while (count + 1 < map.magnitudes && map.midpoints[count] < magnitude) ++count;
  return count;
}

void fill_buckets(DynamicMap& map) {
  for (int i = 0; i < DYNAMIC_BUCKETS; ++i) {
    const uint32_t first = (DYNAMIC_BUCKET_FIRST + static_cast<uint32_t>(i)) << 16;
    const int below = midpoints_below(map, float_of(first));
    const bool has_midpoint = midpoints_below(map, float_of(first + 0x10000)) > below;
    const uint32_t threshold = has_midpoint ? bits_of(map.midpoints[below]) & 0xFFFF : DYNAMIC_NO_MIDPOINT;
    map.buckets[i] = threshold << 8 | static_cast<uint32_t>(below);
  }
}

DynamicMap build(bool is_signed) {
  DynamicMap map = {};
  map.zero_code = is_signed ? DYNAMIC_LARGEST_NEGATIVE : 0;
  float* magnitudes = map.values + map.zero_code;
  int count = 1;
  for (int decade = 0; decade < DYNAMIC_DECADES; ++decade) {
    const int parts = 1 << (is_signed ? decade : decade + 1);
    for (int j = 0; j < parts; ++j) magnitudes[count++] = dynamic_value(decade, j, parts);
  }
  magnitudes[count++] = 1.0f;
  map.magnitudes = count;
  for (int i = 1; i <= map.zero_code; ++i) magnitudes[-i] = -magnitudes[i];
  for (int i = 0; i + 1 < count; ++i) map.midpoints[i] = (magnitudes[i] + magnitudes[i + 1]) * 0.5f;
  fill_buckets(map);
  for (int code = 0; code < 256; ++code) {
    map.low_halves[code] = static_cast<uint16_t>(bits_of(map.values[code]));
    map.high_halves[code] = static_cast<uint16_t>(bits_of(map.values[code]) >> 16);
  }
  return map;
}

}  // namespace

const DynamicMap& dynamic_map(bool is_signed) {
  static const DynamicMap unsigned_map = build(false);
  static const DynamicMap signed_map = build(true);
  return is_signed ? signed_map : unsigned_map;
}

}  // namespace kpop
