// Affine 8-bit blocks: quantization is bound by Philox in the cache and by memory beyond it, restoring by memory.
#include "affine_block.h"
#include "floats.h"
#include "spans.h"

namespace kpop::cpu::KPOP_ISA {

void quantize_int8(Values x, Blocks blocks, AffineOptions options, const RandomStream& stream, AffineCodes out,
                   int threads) {
  const AffineRule rule = options.paper ? PAPER_RULE : UNBIASED_RULE;
  const RandomStream* random_stream = options.stochastic ? &stream : nullptr;
  for_each_random_block(blocks, threads, random_stream,
                        [=](int64_t block, int64_t first, int64_t n, const uint16_t* random) {
                          alignas(64) float buffer[LARGEST_BLOCK];
                          quantize_affine(load(x, first, n, buffer), n, random, rule, out, block, first);
                        });
}

void dequantize_int8(AffineCodes codes, Blocks blocks, MutableValues out, int threads) {
  const bool streaming = beyond_cache(blocks.count);
  for_each_part(blocks, threads, [=](int64_t begin, int64_t end) {
    alignas(64) float buffer[LARGEST_BLOCK];
    for_each_block(blocks, begin, end, [&](int64_t block, int64_t first, int64_t n) {
      float* restored = store_target(out, first, streaming, buffer);
      restore_affine(codes, block, first, n, restored);
      if (restored == buffer) store(buffer, n, out, first, streaming);
    });
    finish_streaming();
  });
}

}  // namespace kpop::cpu::KPOP_ISA
