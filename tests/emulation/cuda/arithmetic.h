// Arithmetic instructions of csrc/cuda/ptx.cuh on the host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "float16_types.h"

namespace emulation {

// Subnormal values become a zero of their sign.
inline float flushed(float value) {
  const bool subnormal = (float_bits(value) & 0x7fffffffu) < 0x00800000u;
  return subnormal ? float_from_bits(float_bits(value) & 0x80000000u) : value;
}

inline float multiply_flushed(float a, float b) { return flushed(flushed(a) * flushed(b)); }

inline std::uint32_t pack_saturated(int a, int b, std::uint32_t c) {
  const auto byte = [](int value) { return static_cast<std::uint32_t>(std::clamp(value, 0, 255)); };
  return c << 16 | byte(a) << 8 | byte(b);
}

}  // namespace emulation
