#include "dynamic8.cuh"

#include "launch.h"
#include "quantize.h"

namespace kpop::cuda {

void quantize_dynamic8(Values x, Blocks blocks, const DynamicMap* map, bool is_signed, DynamicCodes out, void* stream) {
  const Tiling tiling = tiling_of(blocks, aligned_to_16({x.data, out.codes}));
  const auto kernel = is_signed ? &kpop::quantize_dynamic8<true> : &kpop::quantize_dynamic8<false>;
  launch(kernel, resident_grid(tiling.grid()), THREADS, stream, x, out, map, tiling);
}

void dequantize_dynamic8(DynamicCodes codes, Blocks blocks, const DynamicMap* map, MutableValues out, void* stream) {
  const Tiling tiling = tiling_of(blocks, aligned_to_16({codes.codes, out.data}));
  launch(&kpop::dequantize_dynamic8, resident_grid(tiling.grid()), THREADS, stream, codes, map, out, tiling);
}

}  // namespace kpop::cuda
