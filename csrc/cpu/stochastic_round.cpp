// Stochastic rounding of float32 to bfloat16, in integer arithmetic on the bits: 4 bytes in, 2 out.
#include "common/rounding.h"
#include "spans.h"

namespace kpop::cpu::KPOP_ISA {

void stochastic_round(const float* x, int64_t count, const RandomStream& stream, uint16_t* out, int threads) {
  const Blocks blocks = {count, SHORTEST_SPAN};
  for_each_random_block(blocks, threads, &stream, [=](int64_t, int64_t first, int64_t n, const uint16_t* random) {
    const float* values = x + first;
    uint16_t* rounded = out + first;
    for (int64_t i = 0; i < n; ++i) rounded[i] = bfloat16_stochastic(bits_of(values[i]), random[i]);
  });
}

}  // namespace kpop::cpu::KPOP_ISA
