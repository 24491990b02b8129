// What every inverse root is scaled by.
#include "exact.metal"

constant constexpr float kSafety = 1.01f;
constant constexpr float kSmallest = 0x1p-126f;

// 2^exponent, for exponents of normal numbers.
static inline float power_of_two(int exponent) {
  return as_type<float>(uint(exponent + 127) << 23);
}

// Exponent of the power of 16 that takes out the size of the entries and has exact roots.
static inline int unit_exponent(float largest) {
  const int exponent = int(as_type<uint>(largest) >> 23) - 127;
  return clamp(((exponent + 128) & ~3) - 128, -120, 120);
}
