// Arithmetic whose result does not depend on the math mode, on contraction, on subnormals being kept, or on
// the accuracy of the GPU's division. Every source includes this file first.
#include <metal_stdlib>
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
using namespace metal;

constant constexpr uint kMantissa = 0x007fffffu;
constant constexpr uint kHiddenBit = 0x00800000u;   // also the bits of 2^-126, the smallest normal float
constant constexpr uint kInfinity = 0x7f800000u;
constant constexpr uint kQuietNan = 0x7fc00000u;

// The bits of |x|, or 0 where |x| < 2^-126. As integers they order like the values; NaN is the largest.
static inline uint magnitude(float x) {
  const uint bits = as_type<uint>(x) & 0x7fffffffu;
  return bits < kHiddenBit ? 0u : bits;
}

// The same value as a float, with |x| < 2^-126 as 0. A conversion instruction might flush a subnormal half,
// which is a normal float, so the bits are moved by hand.
static inline float widen(float x) {
  return magnitude(x) == 0u ? 0.0f : x;
}
static inline float widen(bfloat x) {
  return widen(as_type<float>(uint(as_type<ushort>(x)) << 16));
}
static inline float widen(half x) {
  const uint bits = as_type<ushort>(x);
  const uint sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, mantissa = bits & 1023u;
  if (exponent == 0u) {
    return as_type<float>(as_type<uint>(float(mantissa) * 0x1p-24f) | sign);
  }
  return as_type<float>(sign | (exponent == 31u ? 255u : exponent + 112u) << 23 | mantissa << 13);
}

// RN(a b). A zero result loses its sign. Fast math may turn this into a product again and fuse it with a sum
// that follows: continue with integers, as round_half_up does, where that would matter.
static inline float multiply_rounded(float a, float b) {
  return fma(a, b, 0.0f);
}

// floor(RN(y + 1/2)) for |y| < 2^22, in integers.
static inline int round_half_up(float y) {
  const uint bits = as_type<uint>(y), exponent = bits >> 23 & 255u;
  if (exponent < 125u) return 0;  // |y| < 1/4
  // The float before 1/2 makes a sum half-way to 1, which is rounded to 1.
  if (bits == 0x3effffffu) return 1;
  const bool negative = bits >> 31 != 0u;
  const uint shift = 150u - exponent, half_unit = 1u << (shift - 1u);
  const uint mantissa = (bits & kMantissa) | kHiddenBit;
  const int whole = int((mantissa + half_unit - (negative ? 1u : 0u)) >> shift);
  return negative ? -whole : whole;
}

// RN(a / 127) for a finite a >= 0, or 0 where that is below 2^-126. 127 is odd, so there are no ties.
static inline float divide_by_127(float a) {
  const uint bits = as_type<uint>(a);
  if (bits < kHiddenBit) return 0.0f;
  const uint mantissa = (bits & kMantissa) | kHiddenBit;
  // 2^7 mantissa / 127 has 24 or 25 bits; keep 24.
  const bool wide = (mantissa << 7) / 127u > (kMantissa | kHiddenBit);
  const uint dividend = mantissa << (wide ? 6 : 7);
  uint quotient = dividend / 127u;
  quotient += 2u * (dividend - quotient * 127u) > 127u ? 1u : 0u;
  int exponent = int(bits >> 23) - (wide ? 6 : 7);
  if (quotient > (kMantissa | kHiddenBit)) {
    quotient = kHiddenBit;
    exponent += 1;
  }
  return exponent < 1 ? 0.0f : as_type<float>((uint(exponent) << 23) + (quotient - kHiddenBit));
}

// RN(1 / s) for s in [2^-126, 2^126]: the GPU's quotient, corrected by the exact remainder in integers.
// It may be up to 4 units in the last place off, fast math promises 2.5.
static inline float reciprocal_rounded(float s) {
  const uint bits = as_type<uint>(s), exponent = 253u - (bits >> 23);
  const uint divisor = (bits & kMantissa) | kHiddenBit;
  if (divisor == kHiddenBit) return as_type<float>((exponent + 1u) << 23);
  const uint guess = as_type<uint>(1.0f / s);
  int quotient = int((guess & kMantissa) | kHiddenBit);
  // A guess beyond the ends of the binade of 1 / s starts from its end.
  if (guess >> 23 > exponent) quotient = 0xffffff;
  if (guess >> 23 < exponent) quotient = 0x800000;
  // 2^47 - quotient * divisor fits into 32 bits, so the wrapped product gives all of it.
  int remainder = int(0u - uint(quotient) * divisor);
  const int half_divisor = int(divisor >> 1);
  for (int step = 0; step < 5; ++step) {
    const int correction = (remainder > half_divisor ? 1 : 0) - (remainder < -half_divisor ? 1 : 0);
    quotient += correction;
    remainder -= correction * int(divisor);
  }
  return as_type<float>((exponent << 23) + (uint(quotient) - kHiddenBit));
}
