// Adam in a rotated basis for matrices with sides up to N, one thread block a matrix: four products, Adam behind the
// second, the update of the parameter behind the fourth. Bytes moved for an element: 16 for the moments, twice the
// parameter and once the gradient as wide as they are; 24 + 4 m / n for each factor of order m beside n. Bound by
// products: 4 m n (m + n) operations, three on tensor cores for one.
#pragma once

#include "adam_step.cuh"
#include "rotation.cuh"

namespace kpop {

struct KronAdamItem {
  MutableValues param;
  Values grad;
  float *exp_avg, *exp_avg_sq;
  cuda::Factor left, right;
  Scalar<int64_t> step;
  const float* found_inf;
  int rows, columns, first_block;
};

// A kernel parameter.
struct KronAdamArguments {
  KronAdamItem item[cuda::LARGEST_LIST];
  int items;
  bool original;
  AdamSettings settings;
};

// What is computed once for a matrix, in shared memory.
struct KronAdamMatrix {
  AdamStep step;
  Factors factors;
  int64_t offset;  // of its first element
  float *m, *v;
};

// x <- the normalized first moment in the basis, both moments averaged. Where the first one is kept in the basis of the
// gradient there are two rotations: the gradient's for the second moment, then that of the first.
template <int N>
__device__ __forceinline__ void adam_in_basis(Fragments<N>& x, const KronAdamMatrix& matrix, const KronAdamItem& item,
                                              const Rotation& rotation, const KronAdamArguments& arguments) {
  const AdamSettings& settings = arguments.settings;
#pragma unroll 1
  for (bool first = arguments.original;; first = false) {
    const bool of_moment = arguments.original && !first;
    each_held(x, rotation, [&](float& value, int i) {
      const float grad = element(item.grad.data, item.grad.type, matrix.offset + i);
      value = settings.maximize ? -grad : grad;
      if (of_moment) value = matrix.m[i] = averaged(matrix.m[i], value, settings.decay1);
    });
    rotate<false>(x, rotation);
    each_held(x, rotation, [&](float& value, int i) {
      const float second = of_moment ? matrix.v[i] : averaged_square(matrix.v[i], value, settings.decay2);
      if (!of_moment) matrix.v[i] = second;
      if (!arguments.original) value = matrix.m[i] = averaged(matrix.m[i], value, settings.decay1);
      value = normalized(value, second, matrix.step, settings);
    });
    if (!first) return;
  }
}

template <int N>
__global__ void __launch_bounds__(2 * N, 1) kron_adam(const __grid_constant__ KronAdamArguments arguments) {
  KPOP_DYNAMIC_SHARED(float, shared);
  __shared__ KronAdamMatrix matrix;
  const int block = static_cast<int>(blockIdx.x);
  const KronAdamItem& item = item_of(arguments.item, arguments.items, block);
  if (item.found_inf && *item.found_inf != 0.0f) return;
  if (threadIdx.x == 0) {
    const int64_t number = block - item.first_block, offset = number * item.rows * item.columns;
    const Factors factors = {factor_of(item.left, number, item.rows), factor_of(item.right, number, item.columns)};
    matrix = {adam_step(arguments.settings, item.step.value()), factors, offset, item.exp_avg + offset,
              item.exp_avg_sq + offset};
  }
  __syncthreads();
  const Rotation rotation = {item.rows, item.columns, matrix.factors, shared, Place()};
  Fragments<N> x;
  adam_in_basis(x, matrix, item, rotation, arguments);
  rotate<true>(x, rotation);
  each_held(x, rotation, [&](float& value, int i) {
    const MutableValues& param = item.param;
    const float old = element(param.data, param.type, matrix.offset + i);
    set_element(param.data, param.type, matrix.offset + i, decayed(old, value, matrix.step));
  });
}

}  // namespace kpop
