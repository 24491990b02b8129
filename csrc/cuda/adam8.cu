#include "adam8.cuh"

#include "launch.h"
#include "quantize.h"

namespace kpop::cuda {

namespace {

Adam8Parameters parameters_of(const Adam8Arguments& step, const RandomArguments& random) {
  return {settings_of(step.adam), {random.step, random.stream.step}, step.found_inf};
}

}  // namespace

void adam8(MutableValues param, Values grad, AffineCodes exp_avg, DynamicCodes exp_avg_sq, Blocks blocks,
           const DynamicMap* map, const Adam8Arguments& step, const RandomArguments& random, void* stream) {
  const Tiling tiling = tiling_of(blocks, aligned_to_16({param.data, grad.data, exp_avg.codes, exp_avg_sq.codes}));
  launch(&kpop::adam8, resident_grid(tiling.grid()), THREADS, stream, param, grad, exp_avg, exp_avg_sq, map,
         parameters_of(step, random), tiling, source_of(random));
}

void adam8_list(const BlockItem* items, int64_t count, int64_t block_size, const DynamicMap* map,
                const Adam8Arguments& step, const RandomArguments& random, void* stream) {
  for_each_list(items, count, block_size, [&](const List& list, const Tiling& tiling, int64_t grid) {
    launch(&kpop::list_adam8, resident_grid(grid), THREADS, stream, list, map, parameters_of(step, random), tiling,
           source_of(random));
  });
}

}  // namespace kpop::cuda
