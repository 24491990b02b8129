// A part of a matrix in shared memory, between two factors: both products without a round trip to memory.
#pragma once

#include <algorithm>

#include "fragments.cuh"
#include "kron.h"

namespace kpop {

// Matrices of one shape with their factors, a part of kernel parameters. nullptr is the identity.
struct Matrices {
  cuda::Factor left, right;
  int rows, columns;
};

inline Matrices matrices_of(const cuda::KronShape& shape) {
  return {shape.left, shape.right, static_cast<int>(shape.rows), static_cast<int>(shape.columns)};
}

// What the order of a kernel must not be below: the longest side with a factor.
inline int64_t order_of(const cuda::KronShape& shape) {
  return std::max(shape.left.data ? shape.rows : 1, shape.right.data ? shape.columns : 1);
}

// Thread blocks along a side: one where a factor sums over it, one for N of it where none does.
template <int N>
KPOP_HOST_DEVICE int parts_along(int side, const cuda::Factor& factor) {
  return factor.data ? 1 : (side + N - 1) / N;
}

// Thread blocks of a matrix.
template <int N>
KPOP_HOST_DEVICE int parts_of(const Matrices& matrices) {
  return parts_along<N>(matrices.rows, matrices.left) * parts_along<N>(matrices.columns, matrices.right);
}

// What a thread block has of a matrix.
struct Part {
  int64_t offset;  // of its first entry in memory, from where others are counted in 32 bits
  int rows, columns, stride;
  const float *left, *right;

  __device__ __forceinline__ int64_t place_of(int row, int column) const { return offset + (row * stride + column); }
};

template <int N>
__device__ __forceinline__ Part part_of(const Matrices& matrices, int number) {
  const auto [left, right, rows, columns] = matrices;
  const int across = parts_along<N>(columns, right), count = parts_of<N>(matrices);
  const int64_t matrix = number / count;
  const int row = number % count / across * N, column = number % across * N;
  const auto factor = [&](const cuda::Factor& given, int order) {
    return given.many ? given.data + matrix * order * order : given.data;
  };
  return {(matrix * rows + row) * columns + column, min(N, rows - row),  min(N, columns - column), columns,
          factor(left, rows),                       factor(right, columns)};
}

// Entries that a thread handles at once: what it loads for all of them is under way together.
constexpr int BATCH = 8;

// The calling thread's entries of up to 32 BATCH / N rows, neighbours in neighbouring threads.
template <int N>
struct Batch {
  int row, column, rows, columns;  // of the first entry, and where the matrix ends

  // Calls f(k, row, column) for entry k if it is there.
  template <typename Function>
  __device__ __forceinline__ void each(Function f) const {
#pragma unroll
    for (int k = 0; k < BATCH; ++k) {
      const int i = row + k / (N / WARP), j = column + k % (N / WARP) * WARP;
      if (i < rows && j < columns) f(k, i, j);
    }
  }
};

// Calls f(batch) until all entries of a matrix of up to N x N have had their turn, each in the same thread every time.
template <int N, typename Function>
__device__ __forceinline__ void each_batch(int rows, int columns, const Place& place, Function f) {
  constexpr int DOWN = BATCH * WARP / N;
#pragma unroll 1
  for (int row = DOWN * place.warp; row < rows; row += DOWN * N / 16) f(Batch<N>{row, place.lane, rows, columns});
}

// Where an entry of a part is in shared memory.
template <int N>
__device__ __forceinline__ int shared_index(int row, int column) {
  return row * Float32Products::STRIDE<N> + column;
}

// Calls f(pointer to the elements) of an array of any type.
template <typename Function>
__device__ __forceinline__ void typed(const void* x, Float type, Function f) {
  if (type == Float::float32) return f(static_cast<const float*>(x));
  if (type == Float::bfloat16) return f(static_cast<const __nv_bfloat16*>(x));
  f(static_cast<const __half*>(x));
}
template <typename Function>
__device__ __forceinline__ void typed(void* x, Float type, Function f) {
  if (type == Float::float32) return f(static_cast<float*>(x));
  if (type == Float::bfloat16) return f(static_cast<__nv_bfloat16*>(x));
  f(static_cast<__half*>(x));
}

// S <- the entries of a part of x, negated or not, and 0 up to the next whole piece of a product.
template <int N>
__device__ __forceinline__ void load_part(float* S, const Values& x, bool negated, const Part& part,
                                          const Place& place) {
  const int rows = (part.rows + 7) / 8 * 8, columns = (part.columns + 7) / 8 * 8;
  typed(x.data, x.type, [&](const auto* values) {
    each_batch<N>(rows, columns, place, [&](const Batch<N>& batch) {
      float loaded[BATCH] = {};
      batch.each([&](int k, int row, int column) {
        if (row < part.rows && column < part.columns) loaded[k] = widen(values[part.place_of(row, column)]);
      });
      batch.each([&](int k, int row, int column) {
        S[shared_index<N>(row, column)] = negated ? -loaded[k] : loaded[k];
      });
    });
  });
}

// S <- transposed(left) S right, or left S transposed(right) for the inverse. Up to the next whole piece beyond the part
// S is 0, or NaN where an entry of the same row or column is. Called by all threads once S is there, who may read it
// afterwards. The products share their instructions: each is one of fragments with what lies in shared memory.
template <int N>
__device__ __forceinline__ void rotate(float* S, const Part& part, bool inverse, const Place& place) {
#pragma unroll 1
  for (int side = 0; side < 2; ++side) {
    const float* const factor = side == 0 ? part.left : part.right;
    if (!factor) continue;
    const int order = side == 0 ? part.rows : part.columns;
    Fragments<N> a, product;
    if (side == 0) {
      visit(a, place, [&](float& value, int, int row, int column) {
        const bool held = row < order && column < order;
        value = held ? factor[inverse ? row * order + column : column * order + row] : 0.0f;
      });
    } else {
      visit(a, place, [&](float& value, int, int row, int column) { value = S[shared_index<N>(row, column)]; });
      __syncthreads();
      const int padded = (order + 7) / 8 * 8;
      each_entry<N>(padded, padded, place, [&](int row, int column) {
        const bool held = row < order && column < order;
        const float value = held ? factor[row * order + column] : 0.0f;
        S[inverse ? shared_index<N>(column, row) : shared_index<N>(row, column)] = value;
      });
      __syncthreads();
    }
    const bool busy = 16 * place.warp < part.rows;
    if (busy) Float32Products::multiply<false>(product, a, S, order, place);
    __syncthreads();
    if (busy) Float32Products::store(S, product, 1, place);
    __syncthreads();
  }
}

}  // namespace kpop
