// Elements of any type in and out of registers, 16 bytes at a time where a tile is whole.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstring>

#include "tile.cuh"

namespace kpop {

__device__ __forceinline__ float widen(float value) { return value; }
__device__ __forceinline__ float widen(__half value) { return __half2float(value); }
__device__ __forceinline__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename T>
__device__ __forceinline__ T narrow(float value);
template <>
__device__ __forceinline__ float narrow(float value) { return value; }
template <>
__device__ __forceinline__ __half narrow(float value) { return __float2half_rn(value); }
template <>
__device__ __forceinline__ __nv_bfloat16 narrow(float value) { return __float2bfloat16_rn(value); }

// Element i of an array of any type.
__device__ __forceinline__ float element(const void* x, Float type, int64_t i) {
  switch (type) {
    case Float::float32: return static_cast<const float*>(x)[i];
    case Float::bfloat16: return widen(static_cast<const __nv_bfloat16*>(x)[i]);
    default: return widen(static_cast<const __half*>(x)[i]);
  }
}
__device__ __forceinline__ void set_element(void* x, Float type, int64_t i, float value) {
  switch (type) {
    case Float::float32: static_cast<float*>(x)[i] = value; break;
    case Float::bfloat16: static_cast<__nv_bfloat16*>(x)[i] = narrow<__nv_bfloat16>(value); break;
    default: static_cast<__half*>(x)[i] = narrow<__half>(value);
  }
}

__device__ __forceinline__ uint32_t narrow_pair(float x, float y, __half) {
  const __half2 pair = __floats2half2_rn(x, y);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}
__device__ __forceinline__ uint32_t narrow_pair(float x, float y, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

__device__ __forceinline__ float2 widen_pair(uint32_t bits, __half) {
  __half2 pair;
  memcpy(&pair, &bits, sizeof bits);
  return __half22float2(pair);
}
__device__ __forceinline__ float2 widen_pair(uint32_t bits, __nv_bfloat16) {
  return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000)};
}

// A group as it lies in memory: loads of several rows are under way together when none is looked into before all
// have been issued.
template <typename T>
struct Group {
  uint4 pieces[sizeof(T) / 2];

  __device__ __forceinline__ void load(const T* x) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T)) / 2; ++i) pieces[i] = reinterpret_cast<const uint4*>(x)[i];
  }

  __device__ __forceinline__ void store(T* x) const {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T)) / 2; ++i) reinterpret_cast<uint4*>(x)[i] = pieces[i];
  }

  __device__ __forceinline__ void widen_to(float (&values)[GROUP]) const {
    if constexpr (sizeof(T) == 4) {
      memcpy(values, pieces, sizeof values);
    } else {
      const uint32_t words[] = {pieces[0].x, pieces[0].y, pieces[0].z, pieces[0].w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = widen_pair(words[i], T());
        values[2 * i] = pair.x;
        values[2 * i + 1] = pair.y;
      }
    }
  }

  __device__ __forceinline__ void narrow_from(const float (&values)[GROUP]) {
    if constexpr (sizeof(T) == 4) {
      memcpy(pieces, values, sizeof values);
    } else {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = narrow_pair(values[2 * i], values[2 * i + 1], T());
      pieces[0] = {words[0], words[1], words[2], words[3]};
    }
  }
};

// Fills the groups of a tile with elements of x, and with 0 beyond its end.
template <typename T>
__device__ __forceinline__ void load_tile(float (&values)[ROWS][GROUP], const T* x, const Tile& tile) {
  if (tile.whole()) {
    Group<T> groups[ROWS] = {};
#pragma unroll
    for (int row = 0; row < ROWS; ++row)
      if (tile.holds(row)) groups[row].load(x + tile.first(row));
#pragma unroll
    for (int row = 0; row < ROWS; ++row) groups[row].widen_to(values[row]);
    return;
  }
#pragma unroll
  for (int row = 0; row < ROWS; ++row)
#pragma unroll
    for (int i = 0; i < GROUP; ++i) values[row][i] = tile.holds(row, i) ? widen(x[tile.first(row) + i]) : 0.0f;
}

template <typename T>
__device__ __forceinline__ void store_tile(const float (&values)[ROWS][GROUP], T* x, const Tile& tile) {
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    if (tile.whole()) {
      Group<T> group;
      group.narrow_from(values[row]);
      if (tile.holds(row)) group.store(x + tile.first(row));
    } else {
#pragma unroll
      for (int i = 0; i < GROUP; ++i)
        if (tile.holds(row, i)) x[tile.first(row) + i] = narrow<T>(values[row][i]);
    }
  }
}

__device__ __forceinline__ void load_tile(float (&values)[ROWS][GROUP], Values x, const Tile& tile) {
  if (x.type == Float::float32) return load_tile(values, static_cast<const float*>(x.data), tile);
  if (x.type == Float::bfloat16) return load_tile(values, static_cast<const __nv_bfloat16*>(x.data), tile);
  load_tile(values, static_cast<const __half*>(x.data), tile);
}

__device__ __forceinline__ void store_tile(const float (&values)[ROWS][GROUP], MutableValues x, const Tile& tile) {
  if (x.type == Float::float32) return store_tile(values, static_cast<float*>(x.data), tile);
  if (x.type == Float::bfloat16) return store_tile(values, static_cast<__nv_bfloat16*>(x.data), tile);
  store_tile(values, static_cast<__half*>(x.data), tile);
}

// Writes a row's group of 16-bit elements that need no rounding.
__device__ __forceinline__ void store_group(const uint16_t (&values)[GROUP], uint16_t* memory, const Tile& tile,
                                            int row) {
  if (tile.whole()) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = values[2 * i] | uint32_t{values[2 * i + 1]} << 16;
    *reinterpret_cast<uint4*>(memory + tile.first(row)) = {words[0], words[1], words[2], words[3]};
    return;
  }
#pragma unroll
  for (int i = 0; i < GROUP; ++i)
    if (tile.holds(row, i)) memory[tile.first(row) + i] = values[i];
}

// The codes of a group, the first in the lowest byte.
using Codes = uint2;

__device__ __forceinline__ uint32_t code_at(Codes codes, int i) {
  return (i < 4 ? codes.x : codes.y) >> (8 * (i % 4)) & 0xFF;
}

// Fills each row's group with codes, and with the row's padding beyond the end of the tensor.
__device__ __forceinline__ void load_codes(Codes (&codes)[ROWS], const uint8_t* memory, const Tile& tile,
                                           const uint32_t (&padding)[ROWS]) {
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    codes[row] = {0, 0};
    if (tile.whole()) {
      if (tile.holds(row)) codes[row] = *reinterpret_cast<const Codes*>(memory + tile.first(row));
    } else {
#pragma unroll
      for (int i = 0; i < GROUP; ++i) {
        const uint32_t code = tile.holds(row, i) ? memory[tile.first(row) + i] : padding[row];
        (i < 4 ? codes[row].x : codes[row].y) |= code << (8 * (i % 4));
      }
    }
  }
}

__device__ __forceinline__ void store_codes(Codes codes, uint8_t* memory, const Tile& tile, int row) {
  if (tile.whole()) {
    if (tile.holds(row)) *reinterpret_cast<Codes*>(memory + tile.first(row)) = codes;
    return;
  }
#pragma unroll
  for (int i = 0; i < GROUP; ++i)
    if (tile.holds(row, i)) memory[tile.first(row) + i] = static_cast<uint8_t>(code_at(codes, i));
}

}  // namespace kpop
