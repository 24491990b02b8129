// Both moments of a thread's elements, kept in blocks: restored, averaged with a gradient, stored, left as bits.
#include "moments.metal"

// Takes the gradient's sign where the step ascends.
// prm: number of elements, elements of a block, seed, stream, offset, whether to ascend.
static inline void turn(thread uint* g, constant long* prm) {
  for (uint i = 0u; i < kElements; ++i) {
    g[i] ^= prm[5] != 0 ? kSign : 0u;
  }
}

// Averages m and v with g, and stores them. `partial` holds kMaxThreads values; all threads of the group call this,
// once. prm: see above. weights: beta1, 1 - beta1, beta2, 1 - beta2.
static inline void average_blocks(thread uint* g, device uchar* m_codes, device uchar* v_codes,
                                  device float* m_scales, device uchar* m_zero_points, device float* v_absmax,
                                  constant long* prm, constant float* weights, constant long* step,
                                  device const float* map, device const uint* buckets, Share share,
                                  float minus_zero, threadgroup uint4* partial, uint thread_id, thread uint* m,
                                  thread uint* v) {
  turn(g, prm);
  restore_affine(m_codes, m_scales, m_zero_points, share, minus_zero, m);
  restore_dynamic(v_codes, v_absmax, map, share, minus_zero, v);
  average(g, weights[0], weights[1], minus_zero, m);
  average_square(g, weights[2], weights[3], minus_zero, v);

  // No thread writes a block before all have read it: each waits here for the others' averages.
  const uint4 range = block_max(uint4(affine_range(m), dynamic_range(v), 0u), partial, share, thread_id);
  const AffineGrid grid = affine_grid(range.xy, kUnbiased, minus_zero);
  const DynamicScale scale = dynamic_scale(range.z);
  const uint4 words = random_words(prm, uint(step[0]), share.first);
  store_affine(m, words, false, grid, share, minus_zero, m_codes);
  store_grid(grid, share, m_scales, m_zero_points);
  store_dynamic(v, scale, false, buckets, share, minus_zero, v_codes);
  store_absmax(scale, share, v_absmax);
}
