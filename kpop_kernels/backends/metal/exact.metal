// Arithmetic whose result does not depend on the math mode, on contraction, on subnormals being kept, or on
// the accuracy of the GPU's division. Every source includes this file first.
//
// Values that may be NaN or infinite travel as bits: fast math assumes that there is no such float.
#include <metal_stdlib>
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
using namespace metal;

constant constexpr uint kSign = 0x80000000u;
constant constexpr uint kMantissa = 0x007fffffu;
constant constexpr uint kHiddenBit = 0x00800000u;   // also the bits of 2^-126, the smallest normal float
constant constexpr uint kInfinity = 0x7f800000u;
constant constexpr uint kQuietNan = 0x7fc00000u;

static inline uint magnitude(uint bits) {
  return bits & ~kSign;
}
static inline bool is_nan(uint bits) {
  return magnitude(bits) > kInfinity;
}
static inline bool is_finite(uint bits) {
  return magnitude(bits) < kInfinity;
}

// Subnormals as 0.
static inline uint flushed(uint bits) {
  return magnitude(bits) < kHiddenBit ? 0u : bits;
}

// The bits of the same value as a float. A conversion instruction might flush a subnormal half, which is a
// normal float, so the bits are moved by hand.
static inline uint float_bits(float x) {
  return as_type<uint>(x);
}
static inline uint float_bits(bfloat x) {
  return uint(as_type<ushort>(x)) << 16;
}
static inline uint float_bits(half x) {
  const uint bits = as_type<ushort>(x);
  const uint sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, mantissa = bits & 1023u;
  if (exponent == 0u) return as_type<uint>(float(mantissa) * 0x1p-24f) | sign;
  return sign | (exponent == 31u ? 255u : exponent + 112u) << 23 | mantissa << 13;
}

// bits / 2^shift, rounded to the nearest integer, to even at ties.
static inline uint shift_rounded(uint bits, uint shift) {
  return (bits + (1u << (shift - 1u)) - 1u + (bits >> shift & 1u)) >> shift;
}

static inline half nearest_half(uint bits) {
  const uint sign = bits >> 16 & 0x8000u, size = magnitude(bits), exponent = size >> 23;
  uint rounded;
  if (size > kInfinity) {
    rounded = 0x7e00u;
  } else if (exponent >= 143u) {  // 2^16 and above
    rounded = 0x7c00u;
  } else if (exponent >= 113u) {
    rounded = shift_rounded(size - (112u << 23), 13u);
  } else if (exponent >= 102u) {  // half of the smallest subnormal and above
    rounded = shift_rounded((size & kMantissa) | kHiddenBit, 126u - exponent);
  } else {
    rounded = 0u;
  }
  return as_type<half>(ushort(sign | rounded));
}

static inline void store(device float* out, ulong i, uint bits) {
  out[i] = as_type<float>(bits);
}
static inline void store(device half* out, ulong i, uint bits) {
  out[i] = nearest_half(bits);
}
static inline void store(device bfloat* out, ulong i, uint bits) {
  out[i] = as_type<bfloat>(ushort(is_nan(bits) ? bits >> 16 | 0x40u : shift_rounded(bits, 16u)));
}

// -0, from a number below 2^32 that is known only when the kernel runs.
static inline float negative_zero(long number) {
  return as_type<float>(kSign | uint(number >> 32));
}

// RN(a b), signs of zero included, where `minus_zero` comes from negative_zero. A compiler that knew it could
// turn this into a product again and fuse that with a sum that follows.
static inline float multiply_rounded(float a, float b, float minus_zero) {
  return fma(a, b, minus_zero);
}

// 2^16 times the fraction of RN(y - floor(y)), cut: 65536 for negative y near 0.
static inline uint fraction16(float y) {
  const float fraction = y - floor(y);
  return uint(fraction * 65536.0f);
}

// RN(a / divisor) for a finite a >= 0 and a divisor of 254 or 255, or 0 where that is below 2^-126. There are
// no ties: 255 is odd, and the remainder by 254 of an even number is not 127.
static inline float divide_rounded(float a, uint divisor) {
  const uint bits = as_type<uint>(a);
  if (bits < kHiddenBit) return 0.0f;
  const uint mantissa = (bits & kMantissa) | kHiddenBit;
  // 2^8 mantissa / divisor has 24 or 25 bits; keep 24.
  const bool wide = (mantissa << 8) / divisor > (kMantissa | kHiddenBit);
  const uint dividend = mantissa << (wide ? 7 : 8);
  uint quotient = dividend / divisor;
  quotient += 2u * (dividend - quotient * divisor) > divisor ? 1u : 0u;
  int exponent = int(bits >> 23) - (wide ? 7 : 8);
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
