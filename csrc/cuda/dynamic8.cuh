// 8-bit blocks on the dynamic map. Bytes moved for an element: 5 from or to float32, 3 from or to a 16-bit type, and 4
// for each block. Bound by memory. Thread blocks stay and walk over tiles, because each begins with a copy of the
// tables.
#pragma once

#include "dynamic.cuh"

namespace kpop {

template <bool SIGNED>
__global__ void __launch_bounds__(THREADS)
    quantize_dynamic8(Values x, DynamicCodes out, const DynamicMap* map, Tiling tiling) {
  __shared__ uint32_t buckets[DYNAMIC_BUCKETS];
  copy_table(buckets, map->buckets);
  __syncthreads();
  for (int64_t number = Tile::first_number(tiling);; number += Tile::stride(tiling)) {
    const Tile tile(tiling, number);
    if (tile.beyond()) return;
    float values[ROWS][GROUP];
    load_tile(values, x, tile);
    quantize_dynamic<SIGNED>(values, tile, buckets, out);
  }
}

__global__ void __launch_bounds__(THREADS)
    dequantize_dynamic8(DynamicCodes in, const DynamicMap* map, MutableValues out, Tiling tiling) {
  __shared__ float values[256];
  copy_table(values, map->values);
  __syncthreads();
  for (int64_t number = Tile::first_number(tiling);; number += Tile::stride(tiling)) {
    const Tile tile(tiling, number);
    if (tile.beyond()) return;
    float restored[ROWS][GROUP];
    restore_dynamic(restored, in, values, tile);
    store_tile(restored, out, tile);
  }
}

}  // namespace kpop
