#include "ema8.cuh"

#include "launch.h"
#include "quantize.h"

namespace kpop::cuda {

void ema_int8(AffineCodes codes, Blocks blocks, Values x, double beta, const RandomArguments& random, float* out,
              void* stream) {
  const Tiling tiling = tiling_of(blocks, aligned_to_16({codes.codes, x.data, out}));
  launch(&kpop::ema_int8, tiling.grid(), THREADS, stream, codes, x, decay_of(beta), out, tiling, source_of(random));
}

void ema_sq_dynamic8(DynamicCodes codes, Blocks blocks, const DynamicMap* map, Values x, double beta, float* out,
                     void* stream) {
  const Tiling tiling = tiling_of(blocks, aligned_to_16({codes.codes, x.data, out}));
  launch(&kpop::ema_sq_dynamic8, resident_grid(tiling.grid()), THREADS, stream, codes, map, x, decay_of(beta), out,
         tiling);
}

void ema_int8_list(const BlockItem* items, int64_t count, int64_t block_size, double beta,
                   const RandomArguments& random, void* stream) {
  for_each_list(items, count, block_size, [&](const List& list, const Tiling& tiling, int64_t grid) {
    launch(&kpop::list_ema_int8, grid, THREADS, stream, list, decay_of(beta), tiling, source_of(random));
  });
}

void ema_sq_dynamic8_list(const BlockItem* items, int64_t count, int64_t block_size, const DynamicMap* map,
                          double beta, void* stream) {
  for_each_list(items, count, block_size, [&](const List& list, const Tiling& tiling, int64_t grid) {
    launch(&kpop::list_ema_sq_dynamic8, resident_grid(grid), THREADS, stream, list, map, decay_of(beta), tiling);
  });
}

}  // namespace kpop::cuda
