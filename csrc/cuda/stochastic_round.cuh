// Stochastic rounding of float32 to bfloat16, in integer arithmetic on the bits. Bytes moved for an element: 6. Bound
// by memory.
#pragma once

#include "../common/rounding.h"
#include "elements.cuh"
#include "random16.cuh"

namespace kpop {

__global__ void __launch_bounds__(THREADS)
    stochastic_round(const float* __restrict__ x, uint16_t* __restrict__ out, Tiling tiling, RandomSource source) {
  const Tile tile(tiling, Tile::first_number(tiling));
  if (tile.beyond()) return;
  float values[ROWS][GROUP];
  load_tile(values, x, tile);
  const Random random(source);
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    const Philox4 entries = random.of_group(tile.first(row));
    uint16_t rounded[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      rounded[i] = bfloat16_stochastic(__float_as_uint(values[row][i]), philox_entry(entries, i));
    store_group(rounded, out, tile, row);
  }
}

}  // namespace kpop
