// Moving averages kept in 8-bit blocks, in one pass. Bytes moved for an element: 10 from float32, 8 from a 16-bit type,
// the average among them; twice 5 for each affine block, twice 4 for each dynamic one. Bound by memory.
#pragma once

#include "list.cuh"
#include "moments.cuh"

namespace kpop {

__device__ __forceinline__ void average_tile(const Tile& tile, AffineCodes codes, Values x, Decay decay, float* out,
                                             const Random& random) {
  if (tile.beyond()) return;
  float m[ROWS][GROUP], values[ROWS][GROUP];
  load_tile(values, x, tile);
  restore_affine(m, codes, tile);
  average(m, values, decay);
  store_tile(m, out, tile);
  quantize_affine<true>(m, tile, UNBIASED_RULE, random, codes);
}

__global__ void __launch_bounds__(THREADS)
    ema_int8(AffineCodes codes, Values x, Decay decay, float* out, Tiling tiling, RandomSource source) {
  average_tile(Tile(tiling, Tile::first_number(tiling)), codes, x, decay, out, Random(source));
}

// The bound of thread blocks keeps ptxas from spilling a register for the sake of a fifth one on sm_100.
__global__ void __launch_bounds__(THREADS, 4)
    list_ema_int8(const __grid_constant__ List list, Decay decay, Tiling tiling, RandomSource source) {
  const int64_t number = Tile::first_number(tiling);
  const int i = item_at(list, number);
  const Tiling own = tiling_at(list, tiling, i);
  const BlockItem& item = list.items[i];
  average_tile(Tile(own, number - list.first_tile[i]), item.affine, item.x, decay,
               static_cast<float*>(item.out.data), random_at(list, source, i));
}

__device__ __forceinline__ void average_square_tile(const Tile& tile, const DynamicTables& tables, DynamicCodes codes,
                                                    Values x, Decay decay, float* out) {
  float v[ROWS][GROUP], values[ROWS][GROUP];
  load_tile(values, x, tile);
  restore_dynamic(v, codes, tables.values, tile);
  average_square(v, values, decay);
  store_tile(v, out, tile);
  quantize_dynamic<false>(v, tile, tables.buckets, codes);
}

__global__ void __launch_bounds__(THREADS)
    ema_sq_dynamic8(DynamicCodes codes, const DynamicMap* map, Values x, Decay decay, float* out, Tiling tiling) {
  __shared__ DynamicTables tables;
  copy_table(tables.values, map->values);
  copy_table(tables.buckets, map->buckets);
  __syncthreads();
  for (int64_t number = Tile::first_number(tiling);; number += Tile::stride(tiling)) {
    const Tile tile(tiling, number);
    if (tile.beyond()) return;
    average_square_tile(tile, tables, codes, x, decay, out);
  }
}

__global__ void __launch_bounds__(THREADS)
    list_ema_sq_dynamic8(const __grid_constant__ List list, const DynamicMap* map, Decay decay, Tiling tiling) {
  __shared__ DynamicTables tables;
  copy_table(tables.values, map->values);
  copy_table(tables.buckets, map->buckets);
  __syncthreads();
  for (int64_t number = Tile::first_number(tiling);; number += Tile::stride(tiling)) {
    const int i = item_at(list, number);
    const Tiling own = tiling_at(list, tiling, i);
    const Tile tile(own, number - list.first_tile[i]);
    if (tile.beyond()) return;
    const BlockItem& item = list.items[i];
    average_square_tile(tile, tables, item.dynamic, item.x, decay, static_cast<float*>(item.out.data));
  }
}

}  // namespace kpop
