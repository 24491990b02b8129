// Adam with both moments in blocks, in one pass: per element parameter and gradient in, the parameter out (4
// or 2 bytes each), 2 bytes of codes in and out, and 9 bytes a block in and out.
#include "adam8_moments.metal"
#include "adam_update.metal"

// prm: number of elements, elements of a block, seed, stream, offset, whether to ascend.
// weights, update: see adam_update.metal.
template <typename P, typename G>
[[max_total_threads_per_threadgroup(512)]]
kernel void adam8(device P* param                [[buffer(0)]],
                  device const G* grad           [[buffer(1)]],
                  device uchar* m_codes          [[buffer(2)]],
                  device uchar* v_codes          [[buffer(3)]],
                  device float* m_scales         [[buffer(4)]],
                  device uchar* m_zero_points    [[buffer(5)]],
                  device float* v_absmax         [[buffer(6)]],
                  constant long* prm             [[buffer(7)]],
                  constant float* weights        [[buffer(8)]],
                  constant float* update         [[buffer(9)]],
                  constant long* step            [[buffer(10)]],
                  device const float* map        [[buffer(11)]],
                  device const uint* buckets     [[buffer(12)]],
                  uint group         [[threadgroup_position_in_grid]],
                  uint thread_id     [[thread_index_in_threadgroup]],
                  uint group_threads [[threads_per_threadgroup]]) {
  threadgroup uint4 partial[kMaxThreads];
  if (is_left_out(update)) return;
  const Share share = share_of(prm, group, thread_id, group_threads);
  const float minus_zero = negative_zero(prm[1]);
  const Normalization u = normalization_of(weights, update);
  uint W[kElements], g[kElements], m[kElements], v[kElements];
  load(param, share, W);
  load(grad, share, g);
  average_blocks(g, m_codes, v_codes, m_scales, m_zero_points, v_absmax, prm, weights, step, map, buckets, share,
                 minus_zero, partial, thread_id, m, v);
  for (uint i = 0u; i < kElements; ++i) {
    W[i] = moved(W[i], normalized(m[i], v[i], u, minus_zero), update, minus_zero);
  }
  store_all(param, share, W);
}

template [[host_name("adam8_float32_float32")]] [[kernel]]
decltype(adam8<float, float>) adam8<float, float>;
template [[host_name("adam8_float32_float16")]] [[kernel]]
decltype(adam8<float, half>) adam8<float, half>;
template [[host_name("adam8_float32_bfloat16")]] [[kernel]]
decltype(adam8<float, bfloat>) adam8<float, bfloat>;
template [[host_name("adam8_float16_float32")]] [[kernel]]
decltype(adam8<half, float>) adam8<half, float>;
template [[host_name("adam8_float16_float16")]] [[kernel]]
decltype(adam8<half, half>) adam8<half, half>;
template [[host_name("adam8_float16_bfloat16")]] [[kernel]]
decltype(adam8<half, bfloat>) adam8<half, bfloat>;
template [[host_name("adam8_bfloat16_float32")]] [[kernel]]
decltype(adam8<bfloat, float>) adam8<bfloat, float>;
template [[host_name("adam8_bfloat16_float16")]] [[kernel]]
decltype(adam8<bfloat, half>) adam8<bfloat, half>;
template [[host_name("adam8_bfloat16_bfloat16")]] [[kernel]]
decltype(adam8<bfloat, bfloat>) adam8<bfloat, bfloat>;
