// Philox-4x32-10: 128 random bits for 8 elements, a function of the element's place in the whole tensor, the
// step, the stream and the seed alone.
#include "exact.metal"

static inline uint4 philox(uint4 counter, uint2 key) {
  for (uint round = 0u; round < 10u; ++round) {
    const uint low0 = 0xd2511f53u * counter.x, high0 = mulhi(0xd2511f53u, counter.x);
    const uint low1 = 0xcd9e8d57u * counter.z, high1 = mulhi(0xcd9e8d57u, counter.z);
    counter = uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
    key.x += 0x9e3779b9u;
    key.y += 0xbb67ae85u;
  }
  return counter;
}

// prm: two numbers of the blocks, seed, stream, index of the tensor's first element in the whole tensor, ...
static inline uint4 philox_call(constant long* prm, uint step, ulong call) {
  const ulong seed = ulong(prm[2]);
  return philox(uint4(uint(call), uint(call >> 32), step, uint(prm[3])), uint2(uint(seed), uint(seed >> 32)));
}

// 16 random bits of one of 8 elements.
static inline uint random16(uint4 words, uint i) {
  return words[i >> 1] >> (16u * (i & 1u)) & 0xffffu;
}

// The random bits of the 8 elements from `first` on, read with random16. That is one call where the whole
// tensor's index of the first is a multiple of 8, as it is except in oddly cut shards.
static inline uint4 random_words(constant long* prm, uint step, ulong first) {
  const ulong element = ulong(prm[4]) + first;
  const uint skipped = uint(element) & 7u;
  const uint4 words = philox_call(prm, step, element >> 3);
  if (skipped == 0u) return words;
  const uint4 next = philox_call(prm, step, (element >> 3) + 1ul);
  uint4 shifted = uint4(0u);
  for (uint i = 0u; i < 8u; ++i) {
    const uint entry = skipped + i;
    const uint random = entry < 8u ? random16(words, entry) : random16(next, entry - 8u);
    shifted[i >> 1] |= random << (16u * (i & 1u));
  }
  return shifted;
}
