// CUDA's arithmetic, conversion and bit intrinsics. Plain operators are exact enough to stand for the _rn
// forms because the module is compiled without contraction; the other roundings switch the host's mode.
#pragma once

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "float16_types.h"

#include <math.h>  // kernels call the functions of <cmath> without std::

namespace emulation {

class RoundingMode {
 public:
  explicit RoundingMode(int mode) : previous_(std::fegetround()) { std::fesetround(mode); }
  ~RoundingMode() { std::fesetround(previous_); }
  RoundingMode(const RoundingMode&) = delete;
  RoundingMode& operator=(const RoundingMode&) = delete;

 private:
  int previous_;
};

// volatile keeps the compiler from moving the operation out of the scope of the rounding mode.
template <typename Operation>
float rounded(int mode, Operation operation, float a, float b = 0, float c = 0) {
  RoundingMode scope(mode);
  volatile float operands[] = {a, b, c};
  volatile float result = operation(operands[0], operands[1], operands[2]);
  return result;
}

// Out-of-range values saturate and NaN becomes 0, as in PTX cvt.
template <typename Integer>
Integer saturated(double value) {
  using Limits = std::numeric_limits<Integer>;
  if (std::isnan(value)) return 0;
  if (value >= static_cast<double>(Limits::max())) return Limits::max();
  if (value <= static_cast<double>(Limits::min())) return Limits::min();
  return static_cast<Integer>(value);
}

}  // namespace emulation

#define EMULATION_ROUNDED(suffix, mode)                                                                    \
  inline float __fadd_##suffix(float a, float b) {                                                         \
    return emulation::rounded(mode, [](float x, float y, float) { return x + y; }, a, b);                  \
  }                                                                                                        \
  inline float __fsub_##suffix(float a, float b) {                                                         \
    return emulation::rounded(mode, [](float x, float y, float) { return x - y; }, a, b);                  \
  }                                                                                                        \
  inline float __fmul_##suffix(float a, float b) {                                                         \
    return emulation::rounded(mode, [](float x, float y, float) { return x * y; }, a, b);                  \
  }                                                                                                        \
  inline float __fdiv_##suffix(float a, float b) {                                                         \
    return emulation::rounded(mode, [](float x, float y, float) { return x / y; }, a, b);                  \
  }                                                                                                        \
  inline float __fmaf_##suffix(float a, float b, float c) {                                                \
    return emulation::rounded(mode, [](float x, float y, float z) { return std::fma(x, y, z); }, a, b, c); \
  }                                                                                                        \
  inline float __fsqrt_##suffix(float a) {                                                                 \
    return emulation::rounded(mode, [](float x, float, float) { return std::sqrt(x); }, a);                \
  }                                                                                                        \
  inline float __frcp_##suffix(float a) { return __fdiv_##suffix(1.0f, a); }

EMULATION_ROUNDED(rz, FE_TOWARDZERO)
EMULATION_ROUNDED(rd, FE_DOWNWARD)
EMULATION_ROUNDED(ru, FE_UPWARD)
#undef EMULATION_ROUNDED

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __frsqrt_rn(float a) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); }
inline double __dmul_rn(double a, double b) { return a * b; }
// The hardware is within 2 units in the last place of this; kernels must not rely on its bits.
inline float rsqrtf(float a) { return __frsqrt_rn(a); }
inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }

#define EMULATION_CONVERSION(suffix, round)                                                           \
  inline int __float2int_##suffix(float a) { return emulation::saturated<int>(round(a)); }            \
  inline unsigned __float2uint_##suffix(float a) { return emulation::saturated<unsigned>(round(a)); } \
  inline long long __float2ll_##suffix(float a) { return emulation::saturated<long long>(round(a)); }

EMULATION_CONVERSION(rn, std::nearbyint)
EMULATION_CONVERSION(rz, std::trunc)
EMULATION_CONVERSION(rd, std::floor)
EMULATION_CONVERSION(ru, std::ceil)
#undef EMULATION_CONVERSION

inline float __int2float_rn(int a) { return static_cast<float>(a); }
inline float __uint2float_rn(unsigned a) { return static_cast<float>(a); }
inline float __ll2float_rn(long long a) { return static_cast<float>(a); }

inline unsigned __float_as_uint(float a) { return emulation::float_bits(a); }
inline int __float_as_int(float a) { return static_cast<int>(emulation::float_bits(a)); }
inline float __uint_as_float(unsigned a) { return emulation::float_from_bits(a); }
inline float __int_as_float(int a) { return emulation::float_from_bits(static_cast<unsigned>(a)); }

inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(std::uint64_t{a} * b >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>(std::int64_t{a} * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline int __clz(int a) { return a ? __builtin_clz(static_cast<unsigned>(a)) : 32; }
inline int __clzll(long long a) { return a ? __builtin_clzll(static_cast<unsigned long long>(a)) : 64; }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline int __ffsll(long long a) { return __builtin_ffsll(a); }
inline unsigned __brev(unsigned a) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (a >> bit & 1u) << (31 - bit);
  return reversed;
}

// Byte i of the result is byte `selector >> 4i & 7` of the eight bytes (b, a); bit 3 replicates its sign.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned nibble = selector >> 4 * i & 0xfu;
    unsigned byte = static_cast<unsigned>(bytes >> 8 * (nibble & 7u)) & 0xffu;
    if (nibble & 8u) byte = byte & 0x80u ? 0xffu : 0u;
    result |= byte << 8 * i;
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (shift & 31u) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31u));
}

template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, T value) {
  *address = value;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
