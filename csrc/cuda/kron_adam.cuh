// Adam in a rotated basis for matrices whose sides with a basis are up to N, one thread block a matrix, or N of a side
// without: up to four products, Adam behind the first two, the update of the parameter behind the last two. Bytes moved
// for an element: 16 for the moments, twice the parameter and once the gradient as wide as they are; and for each basis
// twice its bytes a thread block, once from memory where it is shared. Bound by products where both sides have a basis:
// 4 m n (m + n) operations, three on tensor cores for one; by memory where only a short one has.
#pragma once

#include <type_traits>

#include "adam_step.cuh"
#include "rotation.cuh"

namespace kpop {

struct KronAdamItem {
  MutableValues param;
  Values grad;
  float *exp_avg, *exp_avg_sq;
  Matrices matrices;
  Scalar<int64_t> step;
  const float* found_inf;
  int first_block;
};

// A kernel parameter.
struct KronAdamArguments {
  KronAdamItem item[cuda::LARGEST_LIST];
  int items;
  bool original;
  AdamSettings settings;
};

// What a thread block rotates, in turn. A first moment in the basis of the gradient has a turn of its own, once the
// gradient has gone into the second one.
enum Turn { GRADIENT, MOMENT, UPDATE };

// S <- the gradient, or the first moment averaged with it.
template <int N>
__device__ __forceinline__ void load_turn(float* S, Turn turn, const KronAdamItem& item, const Part& part,
                                          const Place& place, const AdamSettings& settings) {
  load_part<N>(S, item.grad, settings.maximize, part, place);
  if (turn == GRADIENT) return;
  float* const m = item.exp_avg + part.offset;
  each_batch<N>(part.rows, part.columns, place, [&](const Batch<N>& batch) {
    float old[BATCH] = {};
    batch.each([&](int k, int row, int column) { old[k] = m[row * part.stride + column]; });
    batch.each([&](int k, int row, int column) {
      float& value = S[shared_index<N>(row, column)];
      m[row * part.stride + column] = value = averaged(old[k], value, settings.decay1);
    });
  });
}

// The moments of what has been rotated; S <- the normalized first moment once both have been averaged.
template <int N>
__device__ __forceinline__ void adam_turn(float* S, Turn turn, const KronAdamItem& item, const Part& part,
                                          const Place& place, const AdamStep& step,
                                          const KronAdamArguments& arguments) {
  const AdamSettings& settings = arguments.settings;
  float *const m = item.exp_avg + part.offset, *const v = item.exp_avg_sq + part.offset;
  each_batch<N>(part.rows, part.columns, place, [&](const Batch<N>& batch) {
    float first[BATCH] = {}, second[BATCH] = {};
    batch.each([&](int k, int row, int column) {
      const int i = row * part.stride + column;
      second[k] = v[i];
      first[k] = arguments.original ? 0.0f : m[i];
    });
    batch.each([&](int k, int row, int column) {
      const int i = row * part.stride + column;
      float& value = S[shared_index<N>(row, column)];
      if (turn == GRADIENT) v[i] = second[k] = averaged_square(second[k], value, settings.decay2);
      if (!arguments.original) m[i] = value = averaged(first[k], value, settings.decay1);
      if (turn == MOMENT || !arguments.original) value = normalized(value, second[k], step, settings);
    });
  });
}

// The parameter after decay and the update in S.
template <int N>
__device__ __forceinline__ void update_part(const float* S, const MutableValues& param, const Part& part,
                                            const Place& place, const AdamStep& step) {
  typed(param.data, param.type, [&](auto* W) {
    using Element = std::remove_pointer_t<decltype(W)>;
    each_batch<N>(part.rows, part.columns, place, [&](const Batch<N>& batch) {
      float old[BATCH] = {};
      batch.each([&](int k, int row, int column) { old[k] = widen(W[part.place_of(row, column)]); });
      batch.each([&](int k, int row, int column) {
        const float update = S[shared_index<N>(row, column)];
        W[part.place_of(row, column)] = narrow<Element>(decayed(old[k], update, step));
      });
    });
  });
}

template <int N>
__global__ void __launch_bounds__(2 * N, 1) kron_adam(const __grid_constant__ KronAdamArguments arguments) {
  KPOP_DYNAMIC_SHARED(float, S);
  __shared__ Part part;  // once for all threads, like the step: registers are scarce
  __shared__ AdamStep step;
  const int block = static_cast<int>(blockIdx.x);
  const KronAdamItem& item = item_of(arguments.item, arguments.items, block);
  if (item.found_inf && *item.found_inf != 0.0f) return;
  if (threadIdx.x == 0) {
    part = part_of<N>(item.matrices, block - item.first_block);
    step = adam_step(arguments.settings, item.step.value());
  }
  __syncthreads();
  const Place place;
#pragma unroll 1
  for (int number = GRADIENT; number <= UPDATE; ++number) {
    const Turn turn = static_cast<Turn>(number);
    if (turn == MOMENT && !arguments.original) continue;
    if (turn != UPDATE) load_turn<N>(S, turn, item, part, place, arguments.settings);
    __syncthreads();
    rotate<N>(S, part, turn == UPDATE, place);
    if (turn != UPDATE) adam_turn<N>(S, turn, item, part, place, step, arguments);
  }
  update_part<N>(S, item.param, part, place, step);
}

}  // namespace kpop
