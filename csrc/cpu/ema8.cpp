// Moving averages kept in 8-bit blocks, in one pass over memory.
#include "floats.h"
#include "moments.h"
#include "spans.h"

namespace kpop::cpu::KPOP_ISA {

void ema_int8(AffineCodes codes, Blocks blocks, Values x, float beta, float one_minus_beta,
              const RandomStream& stream, float* out, int threads) {
  const Decay decay = {beta, one_minus_beta};
  const MutableValues result = {out, Float::float32};
  const bool streaming = beyond_cache(blocks.count);
  for_each_random_block(blocks, threads, &stream,
                        [=](int64_t block, int64_t first, int64_t n, const uint16_t* random) {
                          alignas(64) float widened[LARGEST_BLOCK];
                          alignas(64) float m[LARGEST_BLOCK];
                          average(codes, block, first, n, load(x, first, n, widened), decay, m);
                          store(m, n, result, first, streaming);
                          quantize_affine(m, n, random, UNBIASED_RULE, codes, block, first);
                          if (streaming) finish_streaming();
                        });
}

void ema_sq_dynamic8(DynamicCodes codes, Blocks blocks, Values x, float beta, float one_minus_beta, float* out,
                     int threads) {
  const DynamicMap& map = dynamic_map(false);
  const Decay decay = {beta, one_minus_beta};
  const MutableValues result = {out, Float::float32};
  const bool streaming = beyond_cache(blocks.count);
  for_each_part(blocks, threads, [=, &map](int64_t begin, int64_t end) {
    alignas(64) float widened[LARGEST_BLOCK];
    alignas(64) float v[LARGEST_BLOCK];
    for_each_block(blocks, begin, end, [&](int64_t block, int64_t first, int64_t n) {
      average_square(map, codes, block, first, n, load(x, first, n, widened), decay, v);
      store(v, n, result, first, streaming);
      quantize_dynamic(map, v, n, codes, block, first);
    });
    finish_streaming();
  });
}

}  // namespace kpop::cpu::KPOP_ISA
