// Adam on one block of 8-bit moments, for a gradient as it is and for one in rotated bases. Every operation is rounded.
#pragma once
#include <math.h>

#include "common/codebook.h"
#include "kernels.h"

namespace kpop::cpu::KPOP_ISA {

// Averages x and the square of y into the moments of one block: in float32 to m and v, in codes to where they were. One
// compiled copy for all kernels.
void average_block(const DynamicMap& map, const BlockItem& item, int64_t block, int64_t first, int64_t n,
                   const float* x, const float* y, const AdamStep& step, const uint16_t* random, float* m, float* v);

namespace {

// N = m c1 / (sqrt(v c2) + eps) within +-limit; NaN stays NaN.
struct Normalize {
  float correction1, correction2, eps, limit;

  float operator()(float m, float v) const {
    float N = m * correction1 / (sqrtf(v * correction2) + eps);
    N = N > limit ? limit : N;
    return N < -limit ? -limit : N;
  }
};

// W <- decay W - lr N
inline void move(float* __restrict W, const float* __restrict m, const float* __restrict v, int64_t n,
                 Normalize normalize, float lr, float decay) {
  for (int64_t i = 0; i < n; ++i) W[i] = W[i] * decay - lr * normalize(m[i], v[i]);
}

// Returns x, or its negative in a buffer where one ascends.
inline const float* downhill(const float* x, int64_t n, float sign, float* buffer) {
  if (!(sign < 0)) return x;
  for (int64_t i = 0; i < n; ++i) buffer[i] = -x[i];
  return buffer;
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
