// Affine 8-bit blocks: quantization is bound by Philox in the cache and by memory beyond it, restoring by memory.
#include "affine_block.h"
#include "floats.h"
#include "spans.h"

namespace kpop::cpu::KPOP_ISA {

void quantize_int8(BlockItems items, AffineOptions options, RandomKey key, int threads) {
  const AffineRule rule = options.paper ? PAPER_RULE : UNBIASED_RULE;
  const auto quantize = [=](const BlockItem& item, int64_t block, int64_t first, int64_t n, const uint16_t* random) {
    alignas(64) float buffer[LARGEST_BLOCK];
    quantize_affine(load(item.x, first, n, buffer), n, random, rule, item.affine, block, first);
  };
  for_each_random_block(items, threads, options.stochastic ? &key : nullptr, quantize);
}

void dequantize_int8(BlockItems items, int threads) {
  const bool streaming = beyond_cache(items);
  for_each_part(items, threads, [=](const BlockItem& item, int64_t begin, int64_t end) {
    alignas(64) float buffer[LARGEST_BLOCK];
    for_each_block(items.block_size, begin, end, [&](int64_t block, int64_t first, int64_t n) {
      float* restored = store_target(item.out, first, streaming, buffer);
      restore_affine(item.affine, block, first, n, restored);
      if (restored == buffer) store(buffer, n, item.out, first, streaming);
    });
    finish_streaming();
  });
}

}  // namespace kpop::cpu::KPOP_ISA
