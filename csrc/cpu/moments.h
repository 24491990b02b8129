// Moving averages of one block: restored, averaged, left in float32. Every product and sum is rounded.
#pragma once
#include "affine_block.h"
#include "dynamic_block.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// m <- beta m + (1 - beta) x
inline void average(AffineCodes codes, int64_t block, int64_t first, int64_t n, const float* __restrict x, Decay decay,
                    float* __restrict m) {
  restore_affine(codes, block, first, n, m);
  for (int64_t i = 0; i < n; ++i) m[i] = decay.beta * m[i] + decay.one_minus_beta * x[i];
}

// v <- beta v + ((1 - beta) x) x; returns the bits of the largest magnitude.
inline uint32_t average_square(const DynamicMap& map, DynamicCodes codes, int64_t block, int64_t first, int64_t n,
                               const float* __restrict x, Decay decay, float* __restrict v) {
  restore_map(map, codes.codes + first, n, codes.absmax[block], v);
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    v[i] = decay.beta * v[i] + decay.one_minus_beta * x[i] * x[i];
    largest = larger_magnitude(largest, v[i]);
  }
  return largest;
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
