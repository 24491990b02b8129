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

}  // namespace kpop::cuda
