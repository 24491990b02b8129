// Moving averages kept in 8-bit blocks, in one pass. Bytes moved for an element: 10 from float32, 8 from a 16-bit type,
// the average among them; twice 5 for each affine block, twice 4 for each dynamic one. Bound by memory.
#pragma once

#include "moments.cuh"

namespace kpop {

__global__ void __launch_bounds__(THREADS)
    ema_int8(AffineCodes codes, Values x, Decay decay, float* out, Tiling tiling, RandomSource source) {
  const Tile tile(tiling, Tile::first_number(tiling));
  if (tile.beyond()) return;
  float m[ROWS][GROUP], values[ROWS][GROUP];
  load_tile(values, x, tile);
  restore_affine(m, codes, tile);
  average(m, values, decay);
  store_tile(m, out, tile);
  quantize_affine<true>(m, tile, UNBIASED_RULE, Random(source), codes);
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
    float v[ROWS][GROUP], values[ROWS][GROUP];
    load_tile(values, x, tile);
    restore_dynamic(v, codes, tables.values, tile);
    average_square(v, values, decay);
    store_tile(v, out, tile);
    quantize_dynamic<false>(v, tile, tables.buckets, codes);
  }
}

}  // namespace kpop
