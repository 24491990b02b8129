// Inverse roots of symmetric matrices of order up to N by the coupled Newton–Schulz iteration, one thread block a
// matrix: read once, written once, in between Y and Z stay in registers and one matrix at a time in shared memory.
// Those up to order 8 are computed in double, whatever the precision of products.
//
// P = ZY is kept as it comes, Y and Z are made symmetric in float32 after each step: with both exactly symmetric, the
// null directions of a singular matrix do not leak into the others. Bound by products: 6 n³ operations a step.
#pragma once

#include <cfloat>

#include "fragments.cuh"
#include "roots.h"
#include "tiny_root.cuh"

namespace kpop {

struct RootItem {
  const void* A;
  void* out;
  float* bound;
  int n, first_block;
};

// A kernel parameter.
struct RootArguments {
  RootItem item[cuda::LARGEST_LIST];
  int items;
  cuda::RootOptions options;
};

constexpr float ROOT_SAFETY = 1.01f;

struct Totals {
  float sum, squares, largest;

  __device__ __forceinline__ void add(const Totals& other) {
    sum += other.sum;
    squares += other.squares;
    largest = fmaxf(largest, other.largest);
  }
};

// Sums and maximum over the thread block, for all threads the same bits. A sum does not depend on idle warps.
template <int N>
__device__ __forceinline__ Totals over_block(Totals totals, const Place& place) {
  __shared__ Totals of_warp[N / 16];
#pragma unroll
  for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
    totals.add({__shfl_xor_sync(ALL_LANES, totals.sum, lanes), __shfl_xor_sync(ALL_LANES, totals.squares, lanes),
                __shfl_xor_sync(ALL_LANES, totals.largest, lanes)});
  __syncthreads();  // the totals of the call before have been read
  if (place.lane == 0) of_warp[place.warp] = totals;
  __syncthreads();
  totals = of_warp[0];
  for (int warp = 1; warp < N / 16; ++warp) totals.add(of_warp[warp]);
  return totals;
}

__device__ __forceinline__ float over_warp(float value) {
#pragma unroll
  for (int lanes = WARP / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(ALL_LANES, value, lanes);
  return value;
}

// One matrix of order n.
struct RootTask {
  int n;
  const cuda::RootOptions& options;
  float* shared;
  Place place;

  __device__ __forceinline__ bool holds(int row, int column) const { return row < n && column < n; }
};

// The smaller of the Wolkowicz–Styan and the Collatz–Wielandt bound of the matrix in shared memory, with a margin.
template <int N>
__device__ __forceinline__ float spectrum_bound(const RootTask& task) {
  __shared__ float sums[N];
  const int first = 16 * task.place.warp, end = min(first + 16, task.n), lane = task.place.lane;
  Totals totals = {};
  for (int row = first; row < end; ++row) {
    float sum = 0;
    for (int column = lane; column < task.n; column += WARP) {
      const float value = task.shared[row * Float32Products::STRIDE<N> + column];
      sum += fabsf(value);
      totals.add({row == column ? value : 0, value * value, 0});
    }
    sum = fmaxf(over_warp(sum), FLT_MIN);
    if (lane == 0) sums[row] = sum;
  }
  __syncthreads();
  for (int row = first; row < end; ++row) {
    float sum = 0;
    for (int column = lane; column < task.n; column += WARP)
      sum += fabsf(task.shared[row * Float32Products::STRIDE<N> + column]) * sums[column];
    totals.largest = fmaxf(totals.largest, over_warp(sum) / sums[row]);
  }
  totals = over_block<N>(totals, task.place);
  const float count = static_cast<float>(task.n);
  const float mean = totals.sum / count, rms = sqrtf(totals.squares / count);
  const float wolkowicz_styan = mean + sqrtf(fmaxf((rms - mean) * (rms + mean), 0) * (count - 1));
  return ROOT_SAFETY * fminf(wolkowicz_styan, totals.largest);
}

// Y <- factor Y + shift I, with 1 on the diagonal beyond the matrix, and Z <- I, both scaled for the stage.
template <int N>
__device__ __forceinline__ void begin(Fragments<N>& Y, Fragments<N>& Z, const cuda::RootStage& stage, float factor,
                                      float shift, const RootTask& task) {
  visit(Y, task.place, [&](float& value, int, int row, int column) {
    const float diagonal = row == column ? 1.0f : 0.0f;
    value = stage.scale_Y * (task.holds(row, column) ? factor * value + shift * diagonal : diagonal);
  });
  visit(Z, task.place,
        [&](float& value, int, int row, int column) { value = row == column ? stage.scale_Z : 0.0f; });
}

struct Normalized {
  float bound;   // of the spectrum in units of 2^exponent: 0 for a zero matrix, NaN for one that is not finite
  int exponent;  // a multiple of 4
};

// Y <- (A + transposed(A)) / 2 + delta I over the bound of its spectrum. A power of 16, which has exact roots, is taken
// out first, so that nothing overflows when it is squared.
template <int N>
__device__ __forceinline__ Normalized normalize(Fragments<N>& Y, Fragments<N>& Z, const void* A,
                                                const RootTask& task) {
  constexpr int STRIDE = Float32Products::STRIDE<N>;
  const cuda::RootOptions& options = task.options;
  each_entry<N>(task.n, task.n, task.place, [&](int row, int column) {
    task.shared[row * STRIDE + column] = element(A, options.type, int64_t{row} * task.n + column);
  });
  __syncthreads();
  load_symmetrized(Y, task.shared, task.place);
  __syncthreads();
  Totals totals = {};
  visit(Y, task.place, [&](float& value, int, int row, int column) {
    value = task.holds(row, column) ? value : 0.0f;
    totals.add({0.0f * value, 0, fabsf(value)});
  });
  totals = over_block<N>(totals, task.place);
  const float largest = totals.largest + options.damping;
  if (!(totals.sum == 0 && largest <= FLT_MAX)) return {NAN, 0};
  if (largest == 0) return {0, 0};
  const int exponent = max(-120, min(120, ilogbf(largest) & ~3));
  const float inverse_unit = ldexpf(1, -exponent);
  visit(Y, task.place, [=](float& value, int, int, int) { value *= inverse_unit; });
  Float32Products::store(task.shared, Y, 1, task.place);
  __syncthreads();
  float bound = spectrum_bound<N>(task);
  const float delta = options.damping * inverse_unit + options.relative_damping * bound;
  bound += ROOT_SAFETY * delta;
  if (bound > 0) begin(Y, Z, options.first, 1 / bound, delta / bound, task);
  return {bound, exponent};
}

// Takes Y to its root or Z to its inverse root, which for p = 1 is squared. The last step updates only one of them.
// No matrix is chosen by a reference: it would have to lie in memory.
template <class Products, int N>
__device__ __forceinline__ void iterate(Fragments<N>& Y, Fragments<N>& Z, const cuda::RootStage& stage, bool wants_Y,
                                        const RootTask& task) {
  using Element = typename Products::Element;
  auto* const shared = reinterpret_cast<Element*>(task.shared);
  const bool busy = 16 * task.place.warp < task.n;
  Fragments<N> product;
  Products::store(shared, Y, 1, task.place);
#pragma unroll 1
  for (int i = 0;; ++i) {
    __syncthreads();
    if (busy) Products::template multiply<false>(product, Z, shared, task.n, task.place);
    __syncthreads();
    if (i == stage.steps) break;
    const cuda::RootStep& step = stage.step[i];
    const bool last = i + 1 == stage.steps;
    Products::store(shared, product, step.product, task.place);
    __syncthreads();
    if (busy && (!last || !wants_Y)) {
      Products::template multiply<true>(product, Z, shared, task.n, task.place);
      combine(Z, step.keep_Z, step.add_Z, product);
    }
    if (busy && (!last || wants_Y)) {
      Products::template multiply<false>(product, Y, shared, task.n, task.place);
      combine(Y, step.keep_Y, step.add_Y, product);
    }
    __syncthreads();
    symmetrize(Z, task.shared, task.place);
    symmetrize(Y, task.shared, task.place);
    if (last && task.options.p != 1) return;
    if (last) copy(Y, Z);
    Products::store(shared, Y, 1, task.place);
  }
  copy(Z, product);
  symmetrize(Z, task.shared, task.place);
}

// What waits in shared memory for the end: registers are scarce in between.
struct RootOutcome {
  void* out;
  float scale;
};

// What the root of the normalized matrix must be multiplied with.
__device__ __forceinline__ float scale_of(Normalized normalized, int p) {
  if (normalized.bound == 0) return 0;
  const float root = sqrtf(normalized.bound);
  const float power = p == 1 ? normalized.bound : p == 2 ? root : sqrtf(root);
  return ldexpf(1 / power, -normalized.exponent / p);
}

// Leaves in Z the root of what `normalize` has left, and in the outcome's scale what is missing of it.
template <class Products, int N>
__device__ __forceinline__ void take_root(Fragments<N>& Y, Fragments<N>& Z, RootOutcome& outcome,
                                          const RootTask& task) {
  const cuda::RootOptions& options = task.options;
#pragma unroll 1
  for (bool second = false;; second = true) {
    const cuda::RootStage& stage = second ? options.second : options.first;
    iterate<Products>(Y, Z, stage, second, task);
    if (second) {
      copy(Z, Y);
      if (threadIdx.x == 0) outcome.scale *= stage.unscale_Y;
      return;
    }
    const float unscale = stage.unscale_Z;
    if (options.p != 4) {
      if (threadIdx.x == 0) outcome.scale *= options.p == 1 ? unscale * unscale : unscale;
      return;
    }
    Float32Products::store(task.shared, Z, unscale, task.place);
    __syncthreads();
    const float largest = spectrum_bound<N>(task);
    if (threadIdx.x == 0) outcome.scale *= sqrtf(largest);
    copy(Y, Z);
    begin(Y, Z, options.second, unscale / largest, 0, task);
  }
}

template <class Products, int N>
__global__ void __launch_bounds__(2 * N, 1) inverse_root(const __grid_constant__ RootArguments arguments) {
  KPOP_DYNAMIC_SHARED(float, shared);
  const int block = static_cast<int>(blockIdx.x);
  const RootItem& item = item_of(arguments.item, arguments.items, block);
  const int64_t matrix = block - item.first_block, offset = matrix * item.n * item.n;
  const int64_t bytes = offset * (arguments.options.type == Float::float32 ? 4 : 2);
  if (item.n <= MAX_TINY) {
    static_assert(sizeof(TinyMemory) <= SHARED_MATRIX<N>, "a tiny matrix takes the place of a larger one");
    return tiny_root(static_cast<const char*>(item.A) + bytes, static_cast<char*>(item.out) + bytes,
                     item.bound + matrix, item.n, arguments.options, *reinterpret_cast<TinyMemory*>(shared));
  }
  const RootTask task = {item.n, arguments.options, shared, Place()};
  __shared__ RootOutcome outcome;
  Fragments<N> Y, Z;
  const Normalized normalized = normalize(Y, Z, static_cast<const char*>(item.A) + bytes, task);
  if (threadIdx.x == 0) {
    item.bound[matrix] = ldexpf(normalized.bound, normalized.exponent);
    outcome = {static_cast<char*>(item.out) + bytes, scale_of(normalized, arguments.options.p)};
  }
  if (normalized.bound > 0)
    take_root<Products>(Y, Z, outcome, task);
  else
    copy(Z, Y);
  __syncthreads();
  Float32Products::store(shared, Z, outcome.scale, task.place);
  __syncthreads();
  // A fused mean of subnormal numbers may differ in the two halves: the upper one is written to both.
  each_entry<N>(task.n, task.n, task.place, [&](int row, int column) {
    set_element(outcome.out, task.options.type, int64_t{row} * task.n + column,
                shared[min(row, column) * Float32Products::STRIDE<N> + max(row, column)]);
  });
}

}  // namespace kpop
