// Adam on a rotated gradient, in one pass. Bound by memory bandwidth beyond the cache, by division and square root
// inside it. No contraction: the result does not depend on the instruction set.
#include <math.h>

#include "kernels.h"
#include "parallel.h"

namespace kpop::cpu::KPOP_ISA {

void adam(float* g, float* m, float* v, int64_t count, const AdamStep& step, int threads) {
  const AdamStep s = step;
  parallel_for(count, 4096, threads, [=](int64_t begin, int64_t end) {
    float* __restrict G = g;
    float* __restrict M = m;
    float* __restrict V = v;
    for (int64_t i = begin; i < end; ++i) {
      const float gi = G[i];
      const float mi = s.beta1 * M[i] + s.one_minus_beta1 * (s.sign * gi);
      const float vi = s.beta2 * V[i] + s.one_minus_beta2 * gi * gi;
      M[i] = mi;
      V[i] = vi;
      G[i] = mi * s.correction1 / (sqrtf(vi * s.correction2) + s.eps);
    }
  });
}

}  // namespace kpop::cpu::KPOP_ISA
