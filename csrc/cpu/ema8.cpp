// Moving averages kept in 8-bit blocks, in one pass over memory.
#include "floats.h"
#include "moments.h"
#include "spans.h"

namespace kpop::cpu::KPOP_ISA {

void ema_int8(BlockItems items, Decay decay, RandomKey key, int threads) {
  const bool streaming = beyond_cache(items);
  const auto update = [=](const BlockItem& item, int64_t block, int64_t first, int64_t n, const uint16_t* random) {
    alignas(64) float widened[LARGEST_BLOCK];
    alignas(64) float m[LARGEST_BLOCK];
    average(item.affine, block, first, n, load(item.x, first, n, widened), decay, m);
    store(m, n, item.out, first, streaming);
    quantize_affine(m, n, random, UNBIASED_RULE, item.affine, block, first);
    if (streaming) finish_streaming();
  };
  for_each_random_block(items, threads, &key, update);
}

void ema_sq_dynamic8(BlockItems items, Decay decay, int threads) {
  const DynamicMap& map = dynamic_map(false);
  const bool streaming = beyond_cache(items);
  for_each_part(items, threads, [=, &map](const BlockItem& item, int64_t begin, int64_t end) {
    alignas(64) float widened[LARGEST_BLOCK];
    alignas(64) float v[LARGEST_BLOCK];
    for_each_block(items.block_size, begin, end, [&](int64_t block, int64_t first, int64_t n) {
      const float* x = load(item.x, first, n, widened);
      const uint32_t largest = average_square(map, item.dynamic, block, first, n, x, decay, v);
      store(v, n, item.out, first, streaming);
      quantize_dynamic(map, v, n, largest, item.dynamic, block, first);
    });
    finish_streaming();
  });
}

}  // namespace kpop::cpu::KPOP_ISA
