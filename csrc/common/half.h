// bfloat16 and float16 as the bits that storage holds, rounded to nearest even.
#pragma once
#include "portable.h"

namespace kpop {

KPOP_HOST_DEVICE float float_of_bfloat16(uint16_t value) { return float_of(uint32_t{value} << 16); }

KPOP_HOST_DEVICE uint16_t bfloat16_of(float value) {
  const uint32_t bits = bits_of(value);
  const bool nan = (bits & MAGNITUDE_BITS) > INFINITY_BITS;
  const uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1);
  return static_cast<uint16_t>((nan ? bits | 0x00400000 : rounded) >> 16);
}

KPOP_HOST_DEVICE float float_of_float16(uint16_t value) {
  const uint32_t sign = (value & 0x8000u) << 16;
  const uint32_t magnitude = value & 0x7FFFu;
  if (magnitude >= 0x7C00) return float_of(sign | INFINITY_BITS | magnitude << 13);
  if (magnitude < 0x0400) return float_of(sign | bits_of(static_cast<float>(magnitude) * 0x1p-24f));
  return float_of(sign | ((magnitude << 13) + 0x38000000));  // exponents are biased by 15 and by 127
}

KPOP_HOST_DEVICE uint16_t float16_of(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & MAGNITUDE_BITS;
  if (magnitude > INFINITY_BITS) return static_cast<uint16_t>(sign | 0x7E00);
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7C00);
  if (magnitude < 0x38800000) {
    // A subnormal float16 is the integer multiple of 2^-24 that this sum rounds to.
    const float sum = float_of(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (bits_of(sum) - bits_of(0.5f)));
  }
  const uint32_t rounded = magnitude + 0x0FFF + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (rounded - 0x38000000) >> 13);
}

}  // namespace kpop
