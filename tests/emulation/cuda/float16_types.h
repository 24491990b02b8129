// __half and __nv_bfloat16 with the conversions of cuda_fp16.h and cuda_bf16.h, rounded to nearest even.
//
// Sums, products and quotients are computed in float and rounded once more, which is exact rounding because
// float has more than twice the digits. __hfma would round twice, so it is not offered.
#pragma once

#include <cstdint>
#include <cstring>

#include "vector_types.h"

namespace emulation {

inline std::uint32_t float_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct HalfFormat {
  static std::uint16_t round(float value) {
    std::uint32_t magnitude = float_bits(value) & 0x7fffffffu;
    const std::uint32_t sign = float_bits(value) >> 16 & 0x8000u;
    if (magnitude > 0x7f800000u) return 0x7fff;
    if (magnitude >= float_bits(65520.0f)) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude < float_bits(0x1p-14f)) {
      // The last place of 0.5f is 2^-24, the spacing of subnormal halves: the addition rounds.
      const float sum = float_from_bits(magnitude) + 0.5f;
      return static_cast<std::uint16_t>(sign | (float_bits(sum) - float_bits(0.5f)));
    }
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    constexpr std::uint32_t bias_difference = (127u - 15u) << 23;
    return static_cast<std::uint16_t>(sign | (magnitude - bias_difference) >> 13);
  }

  static float widen(std::uint16_t bits) {
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    const std::uint32_t exponent = bits >> 10 & 0x1fu;
    const std::uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1fu) return float_from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) {
      const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
      return sign ? -magnitude : magnitude;
    }
    return float_from_bits(sign | (exponent + 127u - 15u) << 23 | fraction << 13);
  }
};

struct Bfloat16Format {
  static std::uint16_t round(float value) {
    const std::uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }

  static float widen(std::uint16_t bits) { return float_from_bits(std::uint32_t{bits} << 16); }
};

template <typename Format>
struct Float16 {
  std::uint16_t bits;

  Float16() = default;  // trivial, so that arrays of it can be __shared__
  Float16(float value) : bits(Format::round(value)) {}
  operator float() const { return Format::widen(bits); }

  friend Float16 operator+(Float16 a, Float16 b) { return float(a) + float(b); }
  friend Float16 operator-(Float16 a, Float16 b) { return float(a) - float(b); }
  friend Float16 operator*(Float16 a, Float16 b) { return float(a) * float(b); }
  friend Float16 operator/(Float16 a, Float16 b) { return float(a) / float(b); }
  friend bool operator<(Float16 a, Float16 b) { return float(a) < float(b); }
  friend bool operator>(Float16 a, Float16 b) { return float(a) > float(b); }
  friend bool operator==(Float16 a, Float16 b) { return float(a) == float(b); }
  friend bool operator!=(Float16 a, Float16 b) { return float(a) != float(b); }
  Float16 operator-() const { return from_bits(bits ^ 0x8000u); }

  static Float16 from_bits(unsigned bits) {
    Float16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    return value;
  }
};

template <typename Scalar>
struct alignas(4) Pair {
  Scalar x, y;

  Pair() = default;
  Pair(Scalar x_, Scalar y_) : x(x_), y(y_) {}
};

}  // namespace emulation

using __half = emulation::Float16<emulation::HalfFormat>;
using __half2 = emulation::Pair<__half>;
using __nv_bfloat16 = emulation::Float16<emulation::Bfloat16Format>;
using __nv_bfloat162 = emulation::Pair<__nv_bfloat16>;
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline float __half2float(__half value) { return value; }
inline __half __float2half(float value) { return value; }
inline __half __float2half_rn(float value) { return value; }
inline float2 __half22float2(__half2 pair) { return {pair.x, pair.y}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 pair) { return {pair.x, pair.y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half value) { return {value, value}; }
inline unsigned short __half_as_ushort(__half value) { return value.bits; }
inline __half __ushort_as_half(unsigned short bits) { return __half::from_bits(bits); }

inline float __bfloat162float(__nv_bfloat16 value) { return value; }
inline __nv_bfloat16 __float2bfloat16(float value) { return value; }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return value; }
inline float2 __bfloat1622float2(__nv_bfloat162 pair) { return {pair.x, pair.y}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 pair) { return {pair.x, pair.y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 value) { return {value, value}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16::from_bits(bits); }

template <typename Scalar>
float __low2float(emulation::Pair<Scalar> pair) {
  return pair.x;
}
template <typename Scalar>
float __high2float(emulation::Pair<Scalar> pair) {
  return pair.y;
}
template <typename Scalar>
emulation::Pair<Scalar> __hadd2(emulation::Pair<Scalar> a, emulation::Pair<Scalar> b) {
  return {a.x + b.x, a.y + b.y};
}
template <typename Scalar>
emulation::Pair<Scalar> __hmul2(emulation::Pair<Scalar> a, emulation::Pair<Scalar> b) {
  return {a.x * b.x, a.y * b.y};
}
