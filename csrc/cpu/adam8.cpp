// Adam with both moments in 8-bit blocks, in one pass: 4 + 4 bytes in and 4 out for parameter and gradient, 2 in and 2
// out for the moments.
#include "floats.h"
#include "moments.h"
#include "spans.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

void negate(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = -x[i];
}

// W <- decay W - lr N, where N = m c1 / (sqrt(v c2) + eps) within +-limit; NaN stays NaN.
void update(float* __restrict W, const float* __restrict m, const float* __restrict v, int64_t n, const Adam8Step& s) {
  const float correction1 = s.adam.correction1, correction2 = s.adam.correction2, eps = s.adam.eps;
  const float lr = s.lr, decay = s.decay, limit = s.limit;
  for (int64_t i = 0; i < n; ++i) {
    float N = m[i] * correction1 / (sqrtf(v[i] * correction2) + eps);
    N = N > limit ? limit : N;
    N = N < -limit ? -limit : N;
    W[i] = W[i] * decay - lr * N;
  }
}

}  // namespace

void adam8(BlockItems items, const Adam8Step& step, RandomKey key, int threads) {
  const DynamicMap& map = dynamic_map(false);
  const Decay decay1 = {step.adam.beta1, step.adam.one_minus_beta1};
  const Decay decay2 = {step.adam.beta2, step.adam.one_minus_beta2};
  const Adam8Step s = step;
  const auto step_block = [=, &map](const BlockItem& item, int64_t block, int64_t first, int64_t n,
                                    const uint16_t* random) {
    alignas(64) float gradient[LARGEST_BLOCK], m[LARGEST_BLOCK], v[LARGEST_BLOCK], W[LARGEST_BLOCK];
    const float* g = load(item.x, first, n, gradient);
    if (s.adam.sign < 0) {
      negate(g, n, gradient);
      g = gradient;
    }
    average(item.affine, block, first, n, g, decay1, m);
    const uint32_t largest = average_square(map, item.dynamic, block, first, n, g, decay2, v);
    float* parameter = store_target(item.out, first, false, W);
    if (parameter == W) load({item.out.data, item.out.type}, first, n, W);
    update(parameter, m, v, n, s);
    if (parameter == W) store(W, n, item.out, first, false);
    quantize_affine(m, n, random, UNBIASED_RULE, item.affine, block, first);
    quantize_dynamic(map, v, n, largest, item.dynamic, block, first);
  };
  for_each_random_block(items, threads, &key, step_block);
}

}  // namespace kpop::cpu::KPOP_ISA
