#include "quantize_int8.cuh"

#include "launch.h"
#include "quantize.h"

namespace kpop::cuda {
namespace {

template <typename T>
void quantize_by_256(Values x, int64_t tiles, bool stochastic, AffineRule rule, const RandomSource& random,
                     AffineCodes out, void* stream) {
  const auto kernel = stochastic ? &quantize_int8_by_256<T, true> : &quantize_int8_by_256<T, false>;
  launch(kernel, ceil_divide(tiles, WARPS), THREADS, stream, static_cast<const T*>(x.data), out.codes, out.scales,
         out.zero_points, tiles, rule, random);
}

void quantize_tiles_by_256(Values x, int64_t tiles, bool stochastic, AffineRule rule, const RandomSource& random,
                           AffineCodes out, void* stream) {
  switch (x.type) {
    case Float::float32:
      return quantize_by_256<float>(x, tiles, stochastic, rule, random, out, stream);
    case Float::bfloat16:
      return quantize_by_256<__nv_bfloat16>(x, tiles, stochastic, rule, random, out, stream);
    case Float::float16:
      return quantize_by_256<__half>(x, tiles, stochastic, rule, random, out, stream);
  }
}

Values behind(Values x, int64_t elements) {
  const int64_t size = x.type == Float::float32 ? 4 : 2;
  return {static_cast<const char*>(x.data) + size * elements, x.type};
}

}  // namespace

void quantize_int8(Values x, Blocks blocks, AffineOptions options, const RandomArguments& random, AffineCodes out,
                   void* stream) {
  const AffineRule rule = options.paper ? PAPER_RULE : UNBIASED_RULE;
  RandomSource source = source_of(random);
  const bool aligned = aligned_to_16({x.data, out.codes});
  if (blocks.block_size == WARP_ROW && aligned && random.stream.offset % GROUP == 0) {
    const int64_t tiles = blocks.count / WARP_TILE, done = tiles * WARP_TILE;
    quantize_tiles_by_256(x, tiles, options.stochastic, rule, source, out, stream);
    x = behind(x, done);
    out = {out.codes + done, out.scales + tiles * ROWS, out.zero_points + tiles * ROWS};
    source.offset += static_cast<uint64_t>(done);
    blocks.count -= done;
  }
  const auto kernel = options.stochastic ? &kpop::quantize_int8<true> : &kpop::quantize_int8<false>;
  const Tiling tiling = tiling_of(blocks, aligned);
  launch(kernel, tiling.grid(), THREADS, stream, x, out, tiling, rule, source);
}

void dequantize_int8(AffineCodes codes, Blocks blocks, MutableValues out, void* stream) {
  const Tiling tiling = tiling_of(blocks, aligned_to_16({codes.codes, out.data}));
  launch(&kpop::dequantize_int8, tiling.grid(), THREADS, stream, codes, out, tiling);
}

void quantize_int8_list(const BlockItem* items, int64_t count, int64_t block_size, AffineOptions options,
                        const RandomArguments& random, void* stream) {
  const auto kernel = options.stochastic ? &kpop::list_quantize_int8<true> : &kpop::list_quantize_int8<false>;
  const AffineRule rule = options.paper ? PAPER_RULE : UNBIASED_RULE;
  for_each_list(items, count, block_size, [&](const List& list, const Tiling& tiling, int64_t grid) {
    launch(kernel, grid, THREADS, stream, list, tiling, rule, source_of(random));
  });
}

void dequantize_int8_list(const BlockItem* items, int64_t count, int64_t block_size, void* stream) {
  for_each_list(items, count, block_size, [&](const List& list, const Tiling& tiling, int64_t grid) {
    launch(&kpop::list_dequantize_int8, grid, THREADS, stream, list, tiling);
  });
}

}  // namespace kpop::cuda
