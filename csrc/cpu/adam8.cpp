// Adam with both moments in 8-bit blocks, in one pass: 4 + 4 bytes in and 4 out for parameter and gradient, 2 in and 2
// out for the moments.
#include "adam8_block.h"
#include "floats.h"
#include "moments.h"
#include "spans.h"

namespace kpop::cpu::KPOP_ISA {

void average_block(const DynamicMap& map, const BlockItem& item, int64_t block, int64_t first, int64_t n,
                   const float* x, const float* y, const AdamStep& step, const uint16_t* random, float* m, float* v) {
  average(item.affine, block, first, n, x, {step.beta1, step.one_minus_beta1}, m);
  const uint32_t largest =
      average_square(map, item.dynamic, block, first, n, y, {step.beta2, step.one_minus_beta2}, v);
  quantize_affine(m, n, random, UNBIASED_RULE, item.affine, block, first);
  quantize_dynamic(map, v, n, largest, item.dynamic, block, first);
}

void adam8(BlockItems items, const Adam8Step& step, RandomKey key, int threads) {
  const DynamicMap& map = dynamic_map(false);
  const Adam8Step s = step;
  const Normalize normalize{s.adam.correction1, s.adam.correction2, s.adam.eps, s.limit};
  const auto step_block = [=, &map](const BlockItem& item, int64_t block, int64_t first, int64_t n,
                                    const uint16_t* random) {
    alignas(64) float gradient[LARGEST_BLOCK], m[LARGEST_BLOCK], v[LARGEST_BLOCK], W[LARGEST_BLOCK];
    const float* g = downhill(load(item.x, first, n, gradient), n, s.adam.sign, gradient);
    average_block(map, item, block, first, n, g, g, s.adam, random, m, v);
    float* parameter = store_target(item.out, first, false, W);
    if (parameter == W) load({item.out.data, item.out.type}, first, n, W);
    move(parameter, m, v, n, normalize, s.lr, s.decay);
    if (parameter == W) store(W, n, item.out, first, false);
  };
  for_each_random_block(items, threads, &key, step_block);
}

}  // namespace kpop::cpu::KPOP_ISA
