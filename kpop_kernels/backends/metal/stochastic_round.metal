// Stochastic rounding of float to bfloat in integer arithmetic on the bits: 4 bytes in and 2 out, an element.
#include "blocks.metal"
#include "random.metal"

constant constexpr uint kLargestBfloat = 0x7f7f0000u;

// Beyond the largest bfloat the bits are cut, so that nothing finite becomes infinite; NaN stays NaN.
static inline ushort rounded_bits(uint bits, uint random) {
  const uint size = magnitude(bits);
  const uint sum = bits + (size > kLargestBfloat ? 0u : random);
  return ushort(sum >> 16 | (size > kInfinity ? 0x40u : 0u));
}

// prm: number of elements, any multiple of 8, seed, stream, offset.
kernel void stochastic_round_bf16(device const float* x [[buffer(0)]],
                                  device bfloat* out    [[buffer(1)]],
                                  constant long* prm    [[buffer(2)]],
                                  constant long* step   [[buffer(3)]],
                                  uint group         [[threadgroup_position_in_grid]],
                                  uint thread_id     [[thread_index_in_threadgroup]],
                                  uint group_threads [[threads_per_threadgroup]]) {
  const Share share = share_of(prm, group, thread_id, group_threads);
  uint bits[kElements];
  load(x, share, bits);
  const uint4 words = random_words(prm, uint(step[0]), share.first);
  for (uint i = 0u; i < kElements; ++i) {
    if (i < share.count) out[share.first + i] = as_type<bfloat>(rounded_bits(bits[i], random16(words, i)));
  }
}
