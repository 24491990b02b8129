// The dynamic map as straight lines. Within a decade its values are equally far apart, so that the index of a magnitude
// is the integer part of a linear function whose integers are the midpoints. Decade and line follow from the exponent
// and one comparison: no binade holds more than one border between decades.
#pragma once
#include "common/codebook.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// Lines pass this close to the midpoints, rounding included, and lie this much higher: where the fraction of the height
// is below twice the error, the magnitude must be compared with the midpoint itself.
constexpr float LINE_ERROR = 2e-4f;

// Region 0 is below the first value, region 1 + i decade i, region 8 the value 1.
struct alignas(64) DynamicLines {
  float threshold[32];  // by the last five bits of the exponent: the border inside the binade, or Inf
  int region[32];       // likewise: the region at the begin of the binade
  float slope[16], offset[16], cap[16];
  float border[DYNAMIC_DECADES + 1];  // between regions i and i + 1
};

inline void set_line(DynamicLines& lines, int region, double slope, double offset, int last) {
  lines.slope[region] = static_cast<float>(slope);
  lines.offset[region] = static_cast<float>(offset);
  lines.cap[region] = static_cast<float>(last + 0.5);
}

// The line of a decade with values first ... last, with its offset in the middle of what its midpoints ask for.
inline void fit_line(DynamicLines& lines, const DynamicMap& map, int region, int first, int last) {
  if (first == last) return set_line(lines, region, 0.0, first + 0.5, last);
  const double slope = (last - first + 1) / 0.9 * pow(10.0, DYNAMIC_DECADES - region);
  double lowest = 1e9, highest = -1e9;
  for (int i = first; i < last; ++i) {
    const double wanted = i + 1 - slope * map.midpoints[i];
    lowest = wanted < lowest ? wanted : lowest;
    highest = wanted > highest ? wanted : highest;
  }
  set_line(lines, region, slope, (lowest + highest) / 2 + LINE_ERROR, last);
}

inline DynamicLines build_lines(const DynamicMap& map) {
  DynamicLines lines = {};
  set_line(lines, 0, 0.0, 0.5, 0);
  int first = 1;
  for (int decade = 0; decade < DYNAMIC_DECADES; ++decade) {
    const int parts = 1 << (map.zero_code ? decade : decade + 1);
    lines.border[decade] = map.midpoints[first - 1];
    fit_line(lines, map, decade + 1, first, first + parts - 1);
    first += parts;
  }
  lines.border[DYNAMIC_DECADES] = map.midpoints[first - 1];
  set_line(lines, DYNAMIC_DECADES + 1, 0.0, first + 0.5, first);
  for (uint32_t exponent = 96; exponent < 128; ++exponent) {
    const float begin = float_of(exponent << 23), end = float_of((exponent + 1) << 23);
    lines.threshold[exponent & 31] = float_of(INFINITY_BITS);
    for (float border : lines.border) {
      lines.region[exponent & 31] += border < begin;
      if (border >= begin && border < end) lines.threshold[exponent & 31] = border;
    }
  }
  return lines;
}

// Built on first use: the instructions of this file may not run when the library is loaded.
inline const DynamicLines& dynamic_lines(const DynamicMap& map) {
  static const DynamicLines unsigned_lines = build_lines(dynamic_map(false));
  static const DynamicLines signed_lines = build_lines(dynamic_map(true));
  return map.zero_code ? signed_lines : unsigned_lines;
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
