// Matrices of up to N x N across a thread block, for products on tensor cores: warp w holds rows 16 w ... 16 w + 15 in
// the layout of accumulators, and the right operand of a product lies in shared memory.
//
// An accumulator serves as left operand without a move of data. Two of 16-bit products are one operand as they are;
// for tf32 the columns 2t and 2t + 1 that a thread holds stand for columns t and t + 4 of the instruction, and the rows
// of the right operand are taken in the same order.
//
// What lies beyond the last whole piece of a matrix does no harm: it meets only entries of the result that nobody reads.
#pragma once

#include <cuda_fp16.h>

#include "elements.cuh"
#include "lists.h"
#include "ptx.cuh"

namespace kpop {

// v[j][e] is the entry in row Place::row(e) and column Place::column(j, e).
template <int N>
struct Fragments {
  static constexpr int TILES = N / 8;
  float v[TILES][4];
};

// Where the calling thread's entries are.
struct Place {
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

  __device__ __forceinline__ int row(int e) const { return 16 * warp + lane / 4 + 8 * (e / 2); }
  __device__ __forceinline__ int column(int j, int e) const { return 8 * j + 2 * (lane % 4) + e % 2; }
};

// Calls f(entry, e, row, column) with every entry, which it may change.
template <class Matrix, typename Function>
__device__ __forceinline__ void visit(Matrix& x, const Place& place, Function f) {
#pragma unroll
  for (int j = 0; j < Matrix::TILES; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) f(x.v[j][e], e, place.row(e), place.column(j, e));
}

// Calls f(row, column) for all entries of a matrix in memory, neighbours in neighbouring threads.
template <int N, typename Function>
__device__ __forceinline__ void each_entry(int rows, int columns, const Place& place, Function f) {
  for (int row = place.warp; row < rows; row += N / 16)
    for (int column = place.lane; column < columns; column += WARP) f(row, column);
}

// The item of a list that a thread block belongs to: its `first_block` is the last one up to that block.
template <class Item>
__device__ __forceinline__ const Item& item_of(const Item* items, int count, int block) {
  int index = 0;
  for (int step = cuda::LARGEST_LIST / 2; step > 0; step /= 2)
    if (index + step < count && items[index + step].first_block <= block) index += step;
  return items[index];
}

// x <- a x + b y
template <int N>
__device__ __forceinline__ void combine(Fragments<N>& x, float a, float b, const Fragments<N>& y) {
#pragma unroll
  for (int j = 0; j < Fragments<N>::TILES; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) x.v[j][e] = fmaf(a, x.v[j][e], b * y.v[j][e]);
}

// x <- y, which an assignment may do through memory.
template <int N>
__device__ __forceinline__ void copy(Fragments<N>& x, const Fragments<N>& y) {
#pragma unroll
  for (int j = 0; j < Fragments<N>::TILES; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) x.v[j][e] = y.v[j][e];
}

// Products of float16 operands with sums in float32.
struct Float16Products {
  using Element = __half;
  static constexpr int DEPTH = 16;
  template <int N>
  static constexpr int STRIDE = N + 8;  // rows of ldmatrix fall into different banks

  template <int N>
  static __device__ __forceinline__ void store(Element* shared, const Fragments<N>& x, float scale,
                                               const Place& place) {
#pragma unroll
    for (int j = 0; j < Fragments<N>::TILES; ++j)
#pragma unroll
      for (int e = 0; e < 4; e += 2)
        *reinterpret_cast<uint32_t*>(shared + place.row(e) * STRIDE<N> + place.column(j, e)) =
            narrow_pair(scale * x.v[j][e], scale * x.v[j][e + 1], __half());
  }

  // d <- a B, or a transposed(B), where a has `depth` columns and perhaps zeros beyond.
  template <bool transposed, int N>
  static __device__ __forceinline__ void multiply(Fragments<N>& d, const Fragments<N>& a, const Element* B, int depth,
                                                  const Place& place) {
    const int row = place.lane % 8, low = place.lane / 8 % 2 * 8, high = place.lane / 16 * 8;
    const Element* const start = B + (transposed ? (row + high) * STRIDE<N> + low : (row + low) * STRIDE<N> + high);
#pragma unroll
    for (int j = 0; j < Fragments<N>::TILES; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) d.v[j][e] = 0;
#pragma unroll
    for (int b = 0; b < N / DEPTH; ++b) {
      if (DEPTH * b >= depth) continue;
      uint32_t left[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&tile)[4] = a.v[2 * b + i / 2];
        left[i] = narrow_pair(tile[i % 2 * 2], tile[i % 2 * 2 + 1], __half());
      }
#pragma unroll
      for (int j = 0; j < Fragments<N>::TILES; j += 2) {
        uint32_t right[4];
        if (transposed)
          ldmatrix(right, start + 8 * j * STRIDE<N> + DEPTH * b);
        else
          ldmatrix_trans(right, start + DEPTH * b * STRIDE<N> + 8 * j);
        mma_m16n8k16_fp16(d.v[j], left, {right[0], right[1]});
        mma_m16n8k16_fp16(d.v[j + 1], left, {right[2], right[3]});
      }
    }
  }
};

// A number as the sum of two of tf32. The first is rounded, so that products of two second ones, which are left out, are
// small and of either sign; of the second the tensor core reads all but perhaps the last digit. NaN stays in the second.
struct Tf32Pair {
  uint32_t high, low;
};

__device__ __forceinline__ Tf32Pair split(float x) {
  const uint32_t high = (__float_as_uint(x) + 0x1000) & 0xFFFFE000;
  return {high, __float_as_uint(x - __uint_as_float(high))};
}

// Products of float32 operands to about its precision: three of tf32 for one.
struct Float32Products {
  using Element = float;
  static constexpr int DEPTH = 8;
  template <int N>
  static constexpr int STRIDE = N + 4;

  template <int N>
  static __device__ __forceinline__ void store(Element* shared, const Fragments<N>& x, float scale,
                                               const Place& place) {
#pragma unroll
    for (int j = 0; j < Fragments<N>::TILES; ++j)
#pragma unroll
      for (int e = 0; e < 4; e += 2)
        *reinterpret_cast<float2*>(shared + place.row(e) * STRIDE<N> + place.column(j, e)) = {scale * x.v[j][e],
                                                                                          scale * x.v[j][e + 1]};
  }

  template <bool transposed, int N>
  static __device__ __forceinline__ void multiply(Fragments<N>& d, const Fragments<N>& a, const Element* B, int depth,
                                                  const Place& place) {
    const int across = place.lane / 4, along = place.lane % 4 * 2;
    const Element* const start = B + (transposed ? across * STRIDE<N> + along : along * STRIDE<N> + across);
#pragma unroll
    for (int j = 0; j < Fragments<N>::TILES; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) d.v[j][e] = 0;
#pragma unroll
    for (int b = 0; b < N / DEPTH; ++b) {
      if (DEPTH * b >= depth) continue;
      uint32_t high[4], low[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Tf32Pair part = split(a.v[b][i % 2 * 2 + i / 2]);
        high[i] = part.high;
        low[i] = part.low;
      }
#pragma unroll
      for (int j = 0; j < Fragments<N>::TILES; ++j) {
        const Element* const at = start + (transposed ? 8 * j * STRIDE<N> + DEPTH * b : DEPTH * b * STRIDE<N> + 8 * j);
        const float2 pair = transposed ? *reinterpret_cast<const float2*>(at) : float2{at[0], at[STRIDE<N>]};
        const Tf32Pair first = split(pair.x), second = split(pair.y);
        mma_m16n8k8_tf32(d.v[j], low, {first.high, second.high});
        mma_m16n8k8_tf32(d.v[j], high, {first.low, second.low});
        mma_m16n8k8_tf32(d.v[j], high, {first.high, second.high});
      }
    }
  }
};

// N rows of float32 numbers, which with a kernel's variables fit into the 99 KiB that every device has.
template <int N>
constexpr int SHARED_MATRIX = N * Float32Products::STRIDE<N> * static_cast<int>(sizeof(float));
static_assert(SHARED_MATRIX<cuda::LARGEST_ORDER> <= 98 * 1024, "a matrix of the largest order fits");

// x <- (x + transposed(x)) / 2 of a matrix in shared memory, equal in its two halves bit for bit.
template <int N>
__device__ __forceinline__ void load_symmetrized(Fragments<N>& x, const float* shared, const Place& place) {
  constexpr int STRIDE = Float32Products::STRIDE<N>;
  visit(x, place, [=](float& value, int, int row, int column) {
    value = 0.5f * shared[row * STRIDE + column] + 0.5f * shared[column * STRIDE + row];
  });
}

// The same for a matrix in registers. Called by all threads; `shared` holds N rows and is free before and after.
template <int N>
__device__ __forceinline__ void symmetrize(Fragments<N>& x, float* shared, const Place& place) {
  Float32Products::store(shared, x, 1, place);
  __syncthreads();
  load_symmetrized(x, shared, place);
  __syncthreads();
}

}  // namespace kpop
