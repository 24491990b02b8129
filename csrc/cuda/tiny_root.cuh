// Inverse roots of matrices up to order 8, in double. The iteration has few roundings there to average over, so that
// float would lose several times more than it does at larger orders. One thread an entry: bound by latency.
#pragma once

#include <cfloat>

#include "elements.cuh"
#include "roots.h"

namespace kpop {

constexpr int MAX_TINY = 8;
constexpr double TINY_SAFETY = 1.01;

// What the first MAX_TINY * MAX_TINY threads of a block share; called by all of its threads.
struct TinyMemory {
  double left[MAX_TINY][MAX_TINY], right[MAX_TINY][MAX_TINY];
  double sum[MAX_TINY], square[MAX_TINY], ratio[MAX_TINY];
};

// The calling thread's entry; beyond the matrix a thread computes with zeros, beyond MAX_TINY rows with nothing.
struct TinyPlace {
  int n, row = threadIdx.x / MAX_TINY, column = threadIdx.x % MAX_TINY;
  TinyMemory& memory;

  __device__ __forceinline__ explicit TinyPlace(int order, TinyMemory& shared) : n(order), memory(shared) {}
  __device__ __forceinline__ bool exists() const { return row < MAX_TINY; }
  __device__ __forceinline__ bool holds() const { return row < n && column < n; }
  __device__ __forceinline__ double diagonal() const { return row == column ? 1.0 : 0.0; }
};

// The calling thread's entry of the product of two matrices, or of its symmetric part.
template <bool symmetric>
__device__ __forceinline__ double tiny_product(double left, double right, const TinyPlace& place) {
  TinyMemory& memory = place.memory;
  __syncthreads();
  if (place.exists()) {
    memory.left[place.row][place.column] = left;
    memory.right[place.row][place.column] = right;
  }
  __syncthreads();
  if (!place.exists()) return 0;
  double sum = 0, mirrored = 0;
#pragma unroll
  for (int k = 0; k < MAX_TINY; ++k) {
    sum += memory.left[place.row][k] * memory.right[k][place.column];
    if (symmetric) mirrored += memory.left[place.column][k] * memory.right[k][place.row];
  }
  return symmetric ? 0.5 * sum + 0.5 * mirrored : sum;
}

// The smaller of the Wolkowicz–Styan and the Collatz–Wielandt bound, with a margin.
__device__ __forceinline__ double tiny_bound(double value, const TinyPlace& place) {
  TinyMemory& memory = place.memory;
  const int row = threadIdx.x;
  __syncthreads();
  if (place.exists()) memory.left[place.row][place.column] = value;
  __syncthreads();
  if (row < place.n) {
    double sum = 0, square = 0;
    for (int k = 0; k < place.n; ++k) {
      sum += fabs(memory.left[row][k]);
      square += memory.left[row][k] * memory.left[row][k];
    }
    memory.sum[row] = fmax(sum, double{FLT_MIN});
    memory.square[row] = square;
  }
  __syncthreads();
  if (row < place.n) {
    double sum = 0;
    for (int k = 0; k < place.n; ++k) sum += fabs(memory.left[row][k]) * memory.sum[k];
    memory.ratio[row] = sum / memory.sum[row];
  }
  __syncthreads();
  double mean = 0, rms = 0, collatz_wielandt = 0;
  for (int k = 0; k < place.n; ++k) {
    mean += memory.left[k][k];
    rms += memory.square[k];
    collatz_wielandt = fmax(collatz_wielandt, memory.ratio[k]);
  }
  mean /= place.n;
  rms = sqrt(rms / place.n);
  const double wolkowicz_styan = mean + sqrt(fmax((rms - mean) * (rms + mean), 0.0) * (place.n - 1));
  return TINY_SAFETY * fmin(wolkowicz_styan, collatz_wielandt);
}

struct TinyPair {
  double Y, Z;
};

// Y^(1/2) and Y^(-1/2).
__device__ __forceinline__ TinyPair tiny_iterate(double Y, const cuda::RootStage& stage, const TinyPlace& place) {
  Y *= stage.scale_Y;
  double Z = stage.scale_Z * place.diagonal();
#pragma unroll 1
  for (int i = 0; i < stage.steps; ++i) {
    const cuda::RootStep& step = stage.step[i];
    const double P = step.product * tiny_product<false>(Z, Y, place);
    const double YP = tiny_product<true>(Y, P, place), PZ = tiny_product<true>(P, Z, place);
    Y = step.keep_Y * Y + step.add_Y * YP;
    Z = step.keep_Z * Z + step.add_Z * PZ;
  }
  return {stage.unscale_Y * Y, stage.unscale_Z * Z};
}

// Reads a matrix of order n at A, writes its root and the bound of its spectrum.
__device__ inline void tiny_root(const void* A, void* out, float* bound_out, int n, const cuda::RootOptions& options,
                                 TinyMemory& memory) {
  const TinyPlace place(n, memory);
  const int here = place.row * n + place.column, mirrored = place.column * n + place.row;
  double value = 0;
  if (place.holds()) value = 0.5 * element(A, options.type, here) + 0.5 * element(A, options.type, mirrored);
  const bool poisoned = __syncthreads_or(!(fabs(value) <= DBL_MAX));
  double bound = tiny_bound(value, place);
  const double delta = options.damping + options.relative_damping * bound;
  bound = poisoned ? double{NAN} : bound + TINY_SAFETY * delta;
  if (threadIdx.x == 0) *bound_out = static_cast<float>(bound);
  if (!(bound > 0)) {
    if (place.holds()) set_element(out, options.type, here, bound == 0 ? 0.0f : NAN);
    return;
  }
  const double Y = value / bound + (place.holds() ? delta / bound * place.diagonal() : 0.0);
  double root = tiny_iterate(Y, options.first, place).Z, scale = 1 / (options.p == 1 ? bound : sqrt(bound));
  if (options.p == 1) root = tiny_product<true>(root, root, place);
  if (options.p == 4) {
    // Beyond its order the root is a multiple of the identity, as large as it can be.
    root = place.holds() ? root : 0.0;
    const double largest = tiny_bound(root, place);
    root = tiny_iterate(root / largest, options.second, place).Y;
    scale = sqrt(largest * scale);
  }
  if (place.holds()) set_element(out, options.type, here, static_cast<float>(scale * root));
}

}  // namespace kpop
