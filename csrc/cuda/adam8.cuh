// Adam with both moments in 8-bit blocks, in one pass. Bytes moved for an element: 2 in and 2 out for the moments, and
// parameter and gradient as wide as they are: 16 with both in float32, 10 with both in 16 bits; twice 9 for each block.
// Bound by memory from float32, by instructions from 16-bit types: each element has a rounded division and a rounded
// square root.
#pragma once

#include "list.cuh"
#include "moments.cuh"

namespace kpop {

// A kernel parameter. Where step and learning rate are in device memory, what follows from them is computed there.
struct Adam8Parameters {
  Decay decay1, decay2;
  double beta1, beta2, weight_decay;
  float eps, limit;
  bool maximize;
  Scalar<int64_t> step;
  Scalar<double> lr;
  const float* found_inf;
};

// What follows from step and learning rate.
struct Adam8Step {
  float correction1, correction2, lr, decay;
};

// 1 / (1 - beta^step), by squares.
__device__ __forceinline__ float bias_correction(double beta, int64_t step) {
  double power = 1.0;
  for (; step > 0; step >>= 1) {
    if (step & 1) power = __dmul_rn(power, beta);
    beta = __dmul_rn(beta, beta);
  }
  return static_cast<float>(1.0 / (1.0 - power));
}

__device__ __forceinline__ Adam8Step adam8_step(const Adam8Parameters& parameters) {
  const int64_t step = parameters.step.value();
  const double lr = parameters.lr.value();
  return {bias_correction(parameters.beta1, step), bias_correction(parameters.beta2, step), static_cast<float>(lr),
          static_cast<float>(1.0 - __dmul_rn(lr, parameters.weight_decay))};
}

// The parameter after decay and update; NaN stays NaN.
__device__ __forceinline__ float updated(float W, float m, float v, const Adam8Step& step, float eps, float limit) {
  const float denominator = __fadd_rn(__fsqrt_rn(__fmul_rn(v, step.correction2)), eps);
  float N = __fdiv_rn(__fmul_rn(m, step.correction1), denominator);
  N = N > limit ? limit : N;
  N = N < -limit ? -limit : N;
  return __fadd_rn(__fmul_rn(W, step.decay), -__fmul_rn(step.lr, N));
}

__device__ __forceinline__ void step_tile(const Tile& tile, const DynamicTables& tables, const Adam8Step& step,
                                          const Adam8Parameters& parameters, MutableValues param, Values grad,
                                          AffineCodes exp_avg, DynamicCodes exp_avg_sq, const Random& random) {
  float m[ROWS][GROUP], v[ROWS][GROUP], values[ROWS][GROUP];
  load_tile(values, grad, tile);
  restore_affine(m, exp_avg, tile);
  restore_dynamic(v, exp_avg_sq, tables.values, tile);
  if (parameters.maximize)
#pragma unroll
    for (int row = 0; row < ROWS; ++row)
#pragma unroll
      for (int i = 0; i < GROUP; ++i) values[row][i] = -values[row][i];
  average(m, values, parameters.decay1);
  average_square(v, values, parameters.decay2);
  load_tile(values, {param.data, param.type}, tile);
#pragma unroll
  for (int row = 0; row < ROWS; ++row)
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      values[row][i] = updated(values[row][i], m[row][i], v[row][i], step, parameters.eps, parameters.limit);
  store_tile(values, param, tile);
  quantize_affine<true>(m, tile, UNBIASED_RULE, random, exp_avg);
  quantize_dynamic<false>(v, tile, tables.buckets, exp_avg_sq);
}

__global__ void __launch_bounds__(THREADS)
    adam8(MutableValues param, Values grad, AffineCodes exp_avg, DynamicCodes exp_avg_sq, const DynamicMap* map,
          Adam8Parameters parameters, Tiling tiling, RandomSource source) {
  if (parameters.found_inf && *parameters.found_inf != 0.0f) return;
  __shared__ DynamicTables tables;
  __shared__ Adam8Step step;
  copy_table(tables.values, map->values);
  copy_table(tables.buckets, map->buckets);
  if (threadIdx.x == 0) step = adam8_step(parameters);
  __syncthreads();
  for (int64_t number = Tile::first_number(tiling);; number += Tile::stride(tiling)) {
    const Tile tile(tiling, number);
    if (tile.beyond()) return;
    step_tile(tile, tables, step, parameters, param, grad, exp_avg, exp_avg_sq, Random(source));
  }
}

__global__ void __launch_bounds__(THREADS)
    list_adam8(const __grid_constant__ List list, const DynamicMap* map, Adam8Parameters parameters, Tiling tiling,
               RandomSource source) {
  if (parameters.found_inf && *parameters.found_inf != 0.0f) return;
  __shared__ DynamicTables tables;
  __shared__ Adam8Step step;
  copy_table(tables.values, map->values);
  copy_table(tables.buckets, map->buckets);
  if (threadIdx.x == 0) step = adam8_step(parameters);
  __syncthreads();
  for (int64_t number = Tile::first_number(tiling);; number += Tile::stride(tiling)) {
    const int i = item_at(list, number);
    const Tiling own = tiling_at(list, tiling, i);
    const Tile tile(own, number - list.first_tile[i]);
    if (tile.beyond()) return;
    const BlockItem& item = list.items[i];
    step_tile(tile, tables, step, parameters, item.out, item.x, item.affine, item.dynamic,
              random_at(list, source, i));
  }
}

}  // namespace kpop
