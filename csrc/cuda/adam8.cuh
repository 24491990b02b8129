// Adam with both moments in 8-bit blocks, in one pass. Bytes moved for an element: 2 in and 2 out for the moments, and
// parameter and gradient as wide as they are: 16 with both in float32, 10 with both in 16 bits; twice 9 for each block.
// Bound by memory from float32, by instructions from 16-bit types: each element has a rounded division and a rounded
// square root.
#pragma once

#include "list.cuh"
#include "moments.cuh"

namespace kpop {

// A kernel parameter.
struct Adam8Parameters {
  AdamSettings settings;
  Scalar<int64_t> step;
  const float* found_inf;
};

// The parameter after decay and update; NaN stays NaN.
__device__ __forceinline__ float updated(float W, float m, float v, const AdamStep& step,
                                         const AdamSettings& settings) {
  return decayed(W, normalized(m, v, step, settings), step);
}

__device__ __forceinline__ void step_tile(const Tile& tile, const DynamicTables& tables, const AdamStep& step,
                                          const Adam8Parameters& parameters, MutableValues param, Values grad,
                                          AffineCodes exp_avg, DynamicCodes exp_avg_sq, const Random& random) {
  float m[ROWS][GROUP], v[ROWS][GROUP], values[ROWS][GROUP];
  load_tile(values, grad, tile);
  restore_affine(m, exp_avg, tile);
  restore_dynamic(v, exp_avg_sq, tables.values, tile);
  if (parameters.settings.maximize)
#pragma unroll
    for (int row = 0; row < ROWS; ++row)
#pragma unroll
      for (int i = 0; i < GROUP; ++i) values[row][i] = -values[row][i];
  average(m, values, parameters.settings.decay1);
  average_square(v, values, parameters.settings.decay2);
  load_tile(values, {param.data, param.type}, tile);
#pragma unroll
  for (int row = 0; row < ROWS; ++row)
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      values[row][i] = updated(values[row][i], m[row][i], v[row][i], step, parameters.settings);
  store_tile(values, param, tile);
  quantize_affine<true>(m, tile, UNBIASED_RULE, random, exp_avg);
  quantize_dynamic<false>(v, tile, tables.buckets, exp_avg_sq);
}

__device__ __forceinline__ void prepare(DynamicTables& tables, AdamStep& step, const DynamicMap* map,
                                        const Adam8Parameters& parameters) {
  copy_table(tables.values, map->values);
  copy_table(tables.buckets, map->buckets);
  if (threadIdx.x == 0) step = adam_step(parameters.settings, parameters.step.value());
  __syncthreads();
}

__global__ void __launch_bounds__(THREADS)
    adam8(MutableValues param, Values grad, AffineCodes exp_avg, DynamicCodes exp_avg_sq, const DynamicMap* map,
          Adam8Parameters parameters, Tiling tiling, RandomSource source) {
  if (parameters.found_inf && *parameters.found_inf != 0.0f) return;
  __shared__ DynamicTables tables;
  __shared__ AdamStep step;
  prepare(tables, step, map, parameters);
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
  __shared__ AdamStep step;
  prepare(tables, step, map, parameters);
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
