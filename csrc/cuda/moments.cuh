// Moving averages of a tile: restored, averaged, left in float32. Every product and sum is rounded.
#pragma once

#include "adam_step.cuh"
#include "affine.cuh"
#include "dynamic.cuh"

namespace kpop {

// m <- beta m + (1 - beta) x
__device__ __forceinline__ void average(float (&m)[ROWS][GROUP], const float (&x)[ROWS][GROUP], Decay decay) {
#pragma unroll
  for (int row = 0; row < ROWS; ++row)
#pragma unroll
    for (int i = 0; i < GROUP; ++i) m[row][i] = averaged(m[row][i], x[row][i], decay);
}

// v <- beta v + ((1 - beta) x) x
__device__ __forceinline__ void average_square(float (&v)[ROWS][GROUP], const float (&x)[ROWS][GROUP], Decay decay) {
#pragma unroll
  for (int row = 0; row < ROWS; ++row)
#pragma unroll
    for (int i = 0; i < GROUP; ++i) v[row][i] = averaged_square(v[row][i], x[row][i], decay);
}

}  // namespace kpop
