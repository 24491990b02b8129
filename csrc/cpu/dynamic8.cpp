// 8-bit blocks on the dynamic map.
#include "dynamic_block.h"
#include "floats.h"
#include "spans.h"

namespace kpop::cpu::KPOP_ISA {

void quantize_dynamic8(BlockItems items, bool is_signed, int threads) {
  const DynamicMap& map = dynamic_map(is_signed);
  for_each_part(items, threads, [=, &map](const BlockItem& item, int64_t begin, int64_t end) {
    alignas(64) float buffer[LARGEST_BLOCK];
    for_each_block(items.block_size, begin, end, [&](int64_t block, int64_t first, int64_t n) {
      const float* x = load(item.x, first, n, buffer);
      quantize_dynamic(map, x, n, largest_magnitude(x, n), item.dynamic, block, first);
    });
  });
}

void dequantize_dynamic8(BlockItems items, bool is_signed, int threads) {
  const DynamicMap& map = dynamic_map(is_signed);
  const bool streaming = beyond_cache(items);
  for_each_part(items, threads, [=, &map](const BlockItem& item, int64_t begin, int64_t end) {
    alignas(64) float buffer[LARGEST_BLOCK];
    for_each_block(items.block_size, begin, end, [&](int64_t block, int64_t first, int64_t n) {
      float* restored = store_target(item.out, first, streaming, buffer);
      restore_map(map, item.dynamic.codes + first, n, item.dynamic.absmax[block], restored);
      if (restored == buffer) store(buffer, n, item.out, first, streaming);
    });
    finish_streaming();
  });
}

}  // namespace kpop::cpu::KPOP_ISA
