// Rotations of matrices with sides up to N, one thread block a matrix, both products in one launch. Bytes moved: those of
// the matrix twice, and each factor once a matrix, which the L2 cache gives where it is shared.
#pragma once

#include "rotation.cuh"

namespace kpop {

// A kernel parameter.
struct KronRotateArguments {
  Values G;
  MutableValues out;
  cuda::Factor left, right;
  int rows, columns;
};

template <bool inverse, int N>
__global__ void __launch_bounds__(2 * N, 1) kron_rotate(KronRotateArguments a) {
  KPOP_DYNAMIC_SHARED(float, shared);
  const int64_t number = blockIdx.x, offset = number * a.rows * a.columns;
  const Factors factors = {factor_of(a.left, number, a.rows), factor_of(a.right, number, a.columns)};
  const Rotation rotation = {a.rows, a.columns, factors, shared, Place()};
  Fragments<N> x;
  each_held(x, rotation, [&](float& value, int i) { value = element(a.G.data, a.G.type, offset + i); });
  rotate<inverse>(x, rotation);
  each_held(x, rotation, [&](float& value, int i) { set_element(a.out.data, a.out.type, offset + i, value); });
}

}  // namespace kpop
