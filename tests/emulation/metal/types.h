// Scalar and vector types of the Metal shading language, and the constructors C++ has no syntax for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if !defined(__clang__) || __clang_major__ < 17
#error "the Metal emulation needs clang 17 or newer: vector swizzles, _Float16 and arithmetic on __bf16"
#endif

// Distinct address spaces make clang reject what Apple's compiler rejects: a pointer that changes its space.
// Code generation treats these numbers as ordinary memory. Space 0, the default, is `thread`.
#define EMULATION_DEVICE __attribute__((address_space(1)))
#define EMULATION_CONSTANT __attribute__((address_space(2)))
#define EMULATION_THREADGROUP __attribute__((address_space(3)))

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using half = _Float16;
using bfloat = __bf16;

#define EMULATION_VECTORS(T)                                \
  using T##2 = T __attribute__((ext_vector_type(2)));       \
  using T##3 = T __attribute__((ext_vector_type(3)));       \
  using T##4 = T __attribute__((ext_vector_type(4)));
EMULATION_VECTORS(char)
EMULATION_VECTORS(uchar)
EMULATION_VECTORS(short)
EMULATION_VECTORS(ushort)
EMULATION_VECTORS(int)
EMULATION_VECTORS(uint)
EMULATION_VECTORS(long)
EMULATION_VECTORS(ulong)
EMULATION_VECTORS(half)
EMULATION_VECTORS(bfloat)
EMULATION_VECTORS(float)
#undef EMULATION_VECTORS

namespace emulation {

template <class T>
struct vector_traits {
  using element = T;
  static constexpr int size = 1;
};
template <class T, int N>
struct vector_traits<T __attribute__((ext_vector_type(N)))> {
  using element = T;
  static constexpr int size = N;
};
template <class T>
using element_t = typename vector_traits<T>::element;
template <class T>
constexpr int vector_size = vector_traits<T>::size;
template <class T>
constexpr bool is_vector = vector_size<T> > 1;
template <class T>
constexpr bool is_floating = std::is_same_v<T, float> || std::is_same_v<T, half> || std::is_same_v<T, bfloat>;

template <class V, class A>
inline void append_elements(V& vector, int& filled, A argument) {
  if constexpr (is_vector<A>) {
    for (int i = 0; i < vector_size<A>; ++i) vector[filled++] = element_t<V>(argument[i]);
  } else {
    vector[filled++] = element_t<V>(argument);
  }
}

template <class... A>
constexpr int total_elements = (vector_size<A> + ...);

// float4(v.xy, 0.0f, 1.0f), float4(0.0f), float4(half4): the constructors of a vector type.
template <class V, class... A>
inline V make_vector(A... arguments) {
  V vector;
  int filled = 0;
  if constexpr (sizeof...(A) == 1 && total_elements<A...> == 1) {
    (void)filled;
    vector = (element_t<V>(arguments), ...);
  } else {
    static_assert(total_elements<A...> == vector_size<V>, "a vector constructor takes one value per element");
    (append_elements(vector, filled, arguments), ...);
  }
  return vector;
}

// Applies a float function to each element: half and bfloat are widened and the result is rounded.
template <class T, class F, class... Rest>
inline T map_elements(F function, T first, Rest... rest) {
  using E = element_t<T>;
  static_assert(!std::is_same_v<E, double>, "double does not exist in Metal: write 1.0f");
  if constexpr (is_vector<T>) {
    T result;
    for (int i = 0; i < vector_size<T>; ++i) result[i] = E(function(first[i], rest[i]...));
    return result;
  } else {
    return T(function(first, rest...));
  }
}

}  // namespace emulation

// What clang calls to round to bfloat, to nearest even. Older run-time libraries lack it.
extern "C" __attribute__((used, visibility("hidden"))) inline bfloat __truncsfbf2(float x) {
  uint bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const ushort rounded = ushort(nan ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  bfloat result;
  std::memcpy(&result, &rounded, sizeof(result));
  return result;
}

namespace metal {
template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));
using std::enable_if_t;
using std::is_same_v;
using std::numeric_limits;
}  // namespace metal

template <class To, class From>
inline To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of the same size");
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}
