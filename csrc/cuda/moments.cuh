// Moving averages of a tile: restored, averaged, left in float32. Every product and sum is rounded.
#pragma once

#include "affine.cuh"
#include "dynamic.cuh"

namespace kpop {

struct Decay {
  float beta, one_minus_beta;
};

inline Decay decay_of(double beta) { return {static_cast<float>(beta), static_cast<float>(1.0 - beta)}; }

// m <- beta m + (1 - beta) x
__device__ __forceinline__ void average(float (&m)[ROWS][GROUP], const float (&x)[ROWS][GROUP], Decay decay) {
#pragma unroll
  for (int row = 0; row < ROWS; ++row)
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      m[row][i] = __fadd_rn(__fmul_rn(decay.beta, m[row][i]), __fmul_rn(decay.one_minus_beta, x[row][i]));
}

// v <- beta v + ((1 - beta) x) x
__device__ __forceinline__ void average_square(float (&v)[ROWS][GROUP], const float (&x)[ROWS][GROUP], Decay decay) {
#pragma unroll
  for (int row = 0; row < ROWS; ++row)
#pragma unroll
    for (int i = 0; i < GROUP; ++i) {
      const float square = __fmul_rn(__fmul_rn(decay.one_minus_beta, x[row][i]), x[row][i]);
      v[row][i] = __fadd_rn(__fmul_rn(decay.beta, v[row][i]), square);
    }
}

}  // namespace kpop
