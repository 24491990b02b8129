// A matrix with sides up to N between two factors, in one thread block: both products without a round trip to memory.
#pragma once

#include "fragments.cuh"
#include "kron.h"

namespace kpop {

// The factors of one matrix, or nullptr for the identity. They wait in shared memory: registers are scarce.
struct Factors {
  const float *left, *right;
};

// What a thread block rotates with.
struct Rotation {
  int rows, columns;
  const Factors& factors;
  float* shared;  // N rows
  Place place;

  __device__ __forceinline__ bool holds(int row, int column) const { return row < rows && column < columns; }
};

__device__ __forceinline__ const float* factor_of(const cuda::Factor& factor, int64_t matrix, int order) {
  return factor.many ? factor.data + matrix * order * order : factor.data;
}

// Calls f(entry, index) with every entry of the matrix and its index in memory; entries beyond it become 0.
template <int N, typename Function>
__device__ __forceinline__ void each_held(Fragments<N>& x, const Rotation& r, Function f) {
  visit(x, r.place, [&](float& value, int, int row, int column) {
    if (r.holds(row, column))
      f(value, row * r.columns + column);
    else
      value = 0;
  });
}

// x <- transposed(left) x right, or left x transposed(right) for the inverse. x is 0 beyond the matrix before, not after.
// Called by all threads.
template <bool inverse, int N>
__device__ __forceinline__ void rotate(Fragments<N>& x, const Rotation& r) {
  constexpr int STRIDE = Float32Products::STRIDE<N>;
  const bool busy = 16 * r.place.warp < r.rows;
  Fragments<N> factor;
  if (r.factors.left) {
    const float* const left = r.factors.left;
    Float32Products::store(r.shared, x, 1, r.place);
    visit(factor, r.place, [&](float& value, int, int row, int column) {
      const bool held = row < r.rows && column < r.rows;
      value = held ? left[inverse ? row * r.rows + column : column * r.rows + row] : 0.0f;
    });
    __syncthreads();
    if (busy) Float32Products::multiply<false>(x, factor, r.shared, r.rows, r.place);
    __syncthreads();
  }
  if (r.factors.right) {
    const float* const right = r.factors.right;
    const int padded = (r.columns + 7) / 8 * 8;
    each_entry<N>(padded, padded, r.place, [&](int row, int column) {
      const bool held = row < r.columns && column < r.columns;
      r.shared[row * STRIDE + column] = held ? right[row * r.columns + column] : 0.0f;
    });
    copy(factor, x);
    __syncthreads();
    if (busy) Float32Products::multiply<inverse>(x, factor, r.shared, r.columns, r.place);
    __syncthreads();
  }
}

}  // namespace kpop
