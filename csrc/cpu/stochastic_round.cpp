// Stochastic rounding of float32 to bfloat16, in integer arithmetic on the bits: 4 bytes in, 2 out.
#include "common/rounding.h"
#include "spans.h"

namespace kpop::cpu::KPOP_ISA {

void stochastic_round(BlockItems items, RandomKey key, int threads) {
  items.block_size = SHORTEST_SPAN;
  const auto round = [](const BlockItem& item, int64_t, int64_t first, int64_t n, const uint16_t* random) {
    const float* values = static_cast<const float*>(item.x.data) + first;
    uint16_t* rounded = static_cast<uint16_t*>(item.out.data) + first;
    for (int64_t i = 0; i < n; ++i) rounded[i] = bfloat16_stochastic(bits_of(values[i]), random[i]);
  };
  for_each_random_block(items, threads, &key, round);
}

}  // namespace kpop::cpu::KPOP_ISA
