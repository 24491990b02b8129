// 8-bit blocks on the dynamic map.
#include "dynamic_block.h"
#include "floats.h"
#include "spans.h"

namespace kpop::cpu::KPOP_ISA {

void quantize_dynamic8(Values x, Blocks blocks, bool is_signed, DynamicCodes out, int threads) {
  const DynamicMap& map = dynamic_map(is_signed);
  for_each_part(blocks, threads, [=, &map](int64_t begin, int64_t end) {
    alignas(64) float buffer[LARGEST_BLOCK];
    for_each_block(blocks, begin, end, [&](int64_t block, int64_t first, int64_t n) {
      quantize_dynamic(map, load(x, first, n, buffer), n, out, block, first);
    });
  });
}

void dequantize_dynamic8(DynamicCodes codes, Blocks blocks, bool is_signed, MutableValues out, int threads) {
  const DynamicMap& map = dynamic_map(is_signed);
  const bool streaming = beyond_cache(blocks.count);
  for_each_part(blocks, threads, [=, &map](int64_t begin, int64_t end) {
    alignas(64) float buffer[LARGEST_BLOCK];
    for_each_block(blocks, begin, end, [&](int64_t block, int64_t first, int64_t n) {
      float* restored = store_target(out, first, streaming, buffer);
      restore_map(map, codes.codes + first, n, codes.absmax[block], restored);
      if (restored == buffer) store(buffer, n, out, first, streaming);
    });
    finish_streaming();
  });
}

}  // namespace kpop::cpu::KPOP_ISA
