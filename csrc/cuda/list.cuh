// Lists of tensors in one launch: the items are kernel parameters, and tiles are counted through all of them.
#pragma once

#include "launch.h"
#include "random16.cuh"
#include "tile.cuh"

namespace kpop {

// As many items as fit beside the other parameters of a kernel, of which there may be 4 KB.
constexpr int ITEMS = 32;

struct List {
  BlockItem items[ITEMS];
  int64_t first_tile[ITEMS + 1];  // of each item, and the number of all tiles
  uint32_t aligned;               // bit i: whether item i can be moved in pieces of 16 bytes
  int32_t count;
};

// The item that a tile is part of, the last one beyond all tiles.
__device__ __forceinline__ int item_at(const List& list, int64_t number) {
  int item = 0;
#pragma unroll
  for (int step = ITEMS / 2; step > 0; step /= 2)
    if (item + step < list.count && list.first_tile[item + step] <= number) item += step;
  return item;
}

__device__ __forceinline__ Tiling tiling_at(const List& list, Tiling tiling, int item) {
  tiling.count = list.items[item].count;
  tiling.aligned = list.aligned >> item & 1;
  return tiling;
}

__device__ __forceinline__ Random random_at(const List& list, const RandomSource& source, int item) {
  return Random(source, list.items[item].stream, list.items[item].offset);
}

// Calls launch(list, tiling, thread blocks) for every ITEMS items that are not empty.
template <class Launch>
void for_each_list(const BlockItem* items, int64_t count, int64_t block_size, const Launch& launch) {
  const Tiling tiling = tiling_of({0, block_size}, false);
  const int64_t teams = THREADS / tiling.team;
  List list = {};
  const auto launch_list = [&] {
    if (list.count > 0) launch(list, tiling, ceil_divide(list.first_tile[list.count], teams));
    list = {};
  };
  for (const BlockItem* item = items; item < items + count; ++item) {
    if (item->count == 0) continue;
    const bool aligned = aligned_to_16({item->x.data, item->out.data, item->affine.codes, item->dynamic.codes});
    list.aligned |= uint32_t{aligned} << list.count;
    list.items[list.count] = *item;
    list.first_tile[list.count + 1] = list.first_tile[list.count] + ceil_divide(item->count, tiling.size);
    if (++list.count == ITEMS) launch_list();
  }
  launch_list();
}

}  // namespace kpop
