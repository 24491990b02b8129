// Arithmetic functions of metal_math and metal_integer. EMULATION_ULP, when it is defined, is the error in
// units in the last place of every division and of every function whose rounding Metal leaves open.
#pragma once

#include <cmath>

#include "types.h"

namespace emulation {

// Zeros, subnormals, infinities and NaNs stay as they are.
inline float approximate(float exact) {
#if defined(EMULATION_ULP)
  const uint bits = as_type<uint>(exact), exponent = bits >> 23 & 255u;
  return exponent == 0u || exponent == 255u ? exact : as_type<float>(bits + uint(EMULATION_ULP));
#else
  return exact;
#endif
}

// Correct: a quotient of floats rounded to double never lies on a tie of float.
inline float divide_correctly(float a, float b) { return float(double(a) / double(b)); }

template <class T>
constexpr bool is_integer = std::is_integral_v<element_t<T>> && !std::is_same_v<element_t<T>, bool>;

}  // namespace emulation

// The approximate build replaces each float division of the kernel by a call of this function.
extern "C" __attribute__((used, visibility("hidden"))) float emulation_divide(float a, float b) {
  return emulation::approximate(emulation::divide_correctly(a, b));
}

namespace metal {

#define EMULATION_UNARY(name, expression)                                                   \
  template <class T>                                                                        \
  inline T name(T value) {                                                                  \
    static_assert(emulation::is_floating<emulation::element_t<T>>, #name " takes float types"); \
    return emulation::map_elements([](float x) -> float { return expression; }, value);    \
  }
EMULATION_UNARY(fabs, std::fabs(x))
EMULATION_UNARY(floor, std::floor(x))
EMULATION_UNARY(ceil, std::ceil(x))
EMULATION_UNARY(trunc, std::trunc(x))
EMULATION_UNARY(round, std::round(x))
EMULATION_UNARY(rint, std::nearbyint(x))
EMULATION_UNARY(fract, std::fmin(x - std::floor(x), 0x1.fffffep-1f))
EMULATION_UNARY(sign, x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : x * 0.0f))
EMULATION_UNARY(saturate, std::fmin(std::fmax(x, 0.0f), 1.0f))

namespace precise {
EMULATION_UNARY(sqrt, std::sqrt(x))
EMULATION_UNARY(rsqrt, float(1.0 / std::sqrt(double(x))))
EMULATION_UNARY(exp, std::exp(x))
EMULATION_UNARY(exp2, std::exp2(x))
EMULATION_UNARY(log, std::log(x))
EMULATION_UNARY(log2, std::log2(x))
EMULATION_UNARY(sin, std::sin(x))
EMULATION_UNARY(cos, std::cos(x))
EMULATION_UNARY(tanh, std::tanh(x))
template <class T>
inline T divide(T a, T b) {
  return emulation::map_elements([](float x, float y) { return emulation::divide_correctly(x, y); }, a, b);
}
template <class T>
inline T pow(T a, T b) {
  return emulation::map_elements([](float x, float y) { return std::pow(x, y); }, a, b);
}
}  // namespace precise

#define EMULATION_APPROXIMATE(name) EMULATION_UNARY(name, emulation::approximate(precise::name(x)))
EMULATION_APPROXIMATE(sqrt)
EMULATION_APPROXIMATE(rsqrt)
EMULATION_APPROXIMATE(exp)
EMULATION_APPROXIMATE(exp2)
EMULATION_APPROXIMATE(log)
EMULATION_APPROXIMATE(log2)
EMULATION_APPROXIMATE(sin)
EMULATION_APPROXIMATE(cos)
EMULATION_APPROXIMATE(tanh)
#undef EMULATION_APPROXIMATE
#undef EMULATION_UNARY

template <class T>
inline T divide(T a, T b) {
  return emulation::map_elements(emulation_divide, a, b);
}
template <class T>
inline T pow(T a, T b) {
  const auto power = [](float x, float y) { return emulation::approximate(std::pow(x, y)); };
  return emulation::map_elements(power, a, b);
}
template <class T>
inline T fmod(T a, T b) {
  return emulation::map_elements([](float x, float y) { return std::fmod(x, y); }, a, b);
}

namespace fast {
using metal::cos;
using metal::divide;
using metal::exp;
using metal::exp2;
using metal::log;
using metal::log2;
using metal::pow;
using metal::rsqrt;
using metal::sin;
using metal::sqrt;
using metal::tanh;
}  // namespace fast

// Rounded once. A half product and sum is exact in double or far from a tie.
template <class T>
inline T fma(T a, T b, T c) {
  if constexpr (std::is_same_v<emulation::element_t<T>, float>) {
    const auto fused = [](float x, float y, float z) { return __builtin_fmaf(x, y, z); };
    return emulation::map_elements(fused, a, b, c);
  } else {
    static_assert(std::is_same_v<emulation::element_t<T>, half>, "fma takes float or half");
    const auto fused = [](double x, double y, double z) { return __builtin_fma(x, y, z); };
    return emulation::map_elements(fused, a, b, c);
  }
}

// For floating-point types the other argument wins over a NaN.
template <class T>
inline T min(T a, T b) {
  if constexpr (emulation::is_integer<T>) {
    return emulation::map_elements([](auto x, auto y) { return y < x ? y : x; }, a, b);
  } else {
    return emulation::map_elements([](float x, float y) { return std::fmin(x, y); }, a, b);
  }
}
template <class T>
inline T max(T a, T b) {
  if constexpr (emulation::is_integer<T>) {
    return emulation::map_elements([](auto x, auto y) { return x < y ? y : x; }, a, b);
  } else {
    return emulation::map_elements([](float x, float y) { return std::fmax(x, y); }, a, b);
  }
}
template <class T>
inline T fmin(T a, T b) {
  return min(a, b);
}
template <class T>
inline T fmax(T a, T b) {
  return max(a, b);
}
template <class T>
inline T clamp(T x, T low, T high) {
  return min(max(x, low), high);
}
template <class T>
inline T abs(T x) {
  return emulation::map_elements([](auto e) { return e < 0 ? decltype(e)(-e) : e; }, x);
}
template <class T>
inline T mix(T x, T y, T a) {
  return x + (y - x) * a;
}
template <class T>
inline T copysign(T a, T b) {
  return emulation::map_elements([](float x, float y) { return std::copysign(x, y); }, a, b);
}
template <class T>
inline T ldexp(T x, int k) {
  return emulation::map_elements([k](float e) { return std::ldexp(e, k); }, x);
}
inline bool isnan(float x) { return x != x; }
inline bool isinf(float x) { return std::fabs(x) == std::numeric_limits<float>::infinity(); }
inline bool isfinite(float x) { return !isnan(x) && !isinf(x); }

template <class T>
inline T select(T if_false, T if_true, bool condition) {
  return condition ? if_true : if_false;
}
template <class T>
inline emulation::element_t<T> dot(T a, T b) {
  emulation::element_t<T> sum(0.0f);
  for (int i = 0; i < emulation::vector_size<T>; ++i) sum += a[i] * b[i];
  return sum;
}
template <class V>
inline bool any(V mask) {
  for (int i = 0; i < emulation::vector_size<V>; ++i)
    if (mask[i]) return true;
  return false;
}
template <class V>
inline bool all(V mask) {
  for (int i = 0; i < emulation::vector_size<V>; ++i)
    if (!mask[i]) return false;
  return true;
}

inline uint mulhi(uint a, uint b) { return uint(ulong(a) * b >> 32); }
inline int mulhi(int a, int b) { return int(long(a) * b >> 32); }
inline ulong mulhi(ulong a, ulong b) { return ulong((unsigned __int128)a * b >> 64); }
inline uint popcount(uint x) { return uint(__builtin_popcount(x)); }
inline uint clz(uint x) { return x == 0u ? 32u : uint(__builtin_clz(x)); }
inline uint ctz(uint x) { return x == 0u ? 32u : uint(__builtin_ctz(x)); }
inline uint reverse_bits(uint x) { return __builtin_bitreverse32(x); }
inline uint rotate(uint x, uint count) { return __builtin_rotateleft32(x, count); }
inline uint extract_bits(uint x, uint offset, uint bits) {
  return bits == 0u ? 0u : x >> offset & (~0u >> (32u - bits));
}

}  // namespace metal
