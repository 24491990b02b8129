#include "stochastic_round.cuh"

#include "launch.h"
#include "quantize.h"

namespace kpop::cuda {

void stochastic_round(const float* x, int64_t count, const RandomArguments& random, uint16_t* out, void* stream) {
  const Tiling tiling = tiling_of({count, WARP_ROW}, aligned_to_16({x, out}));
  launch(&kpop::stochastic_round, tiling.grid(), THREADS, stream, x, out, tiling, source_of(random));
}

}  // namespace kpop::cuda
