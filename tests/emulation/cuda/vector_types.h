// CUDA's built-in vector types, with the alignment the hardware demands of their loads and stores.
#pragma once

#include <cstdint>

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define EMULATION_VECTOR_TYPES(T, name)                                              \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                 \
  struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 { T x, y, z, w; }; \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                         \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMULATION_VECTOR_TYPES(signed char, char)
EMULATION_VECTOR_TYPES(unsigned char, uchar)
EMULATION_VECTOR_TYPES(short, short)
EMULATION_VECTOR_TYPES(unsigned short, ushort)
EMULATION_VECTOR_TYPES(int, int)
EMULATION_VECTOR_TYPES(unsigned, uint)
EMULATION_VECTOR_TYPES(float, float)
EMULATION_VECTOR_TYPES(long long, longlong)
EMULATION_VECTOR_TYPES(unsigned long long, ulonglong)
EMULATION_VECTOR_TYPES(double, double)
#undef EMULATION_VECTOR_TYPES
