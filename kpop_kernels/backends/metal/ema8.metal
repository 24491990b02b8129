// Moving averages kept in blocks, in one pass: per element 4 (float) or 2 bytes of x and 1 of the codes in, 4
// of the average and 1 out, and 5 (affine) or 4 bytes a block in and out.
#include "moments.metal"

// prm: number of elements, elements of a block, seed, stream, offset. weights: beta, 1 - beta.
template <typename T>
[[max_total_threads_per_threadgroup(512)]]
kernel void ema_int8(device const T* x         [[buffer(0)]],
                     device uchar* codes       [[buffer(1)]],
                     device float* out         [[buffer(2)]],
                     device float* scales      [[buffer(3)]],
                     device uchar* zero_points [[buffer(4)]],
                     constant long* prm        [[buffer(5)]],
                     constant float* weights   [[buffer(6)]],
                     constant long* step       [[buffer(7)]],
                     uint group         [[threadgroup_position_in_grid]],
                     uint thread_id     [[thread_index_in_threadgroup]],
                     uint group_threads [[threads_per_threadgroup]]) {
  threadgroup uint2 partial[kMaxThreads];
  const Share share = share_of(prm, group, thread_id, group_threads);
  const float minus_zero = negative_zero(prm[1]);
  uint values[kElements], m[kElements];
  load(x, share, values);
  restore_affine(codes, scales, zero_points, share, minus_zero, m);
  average(values, weights[0], weights[1], minus_zero, m);
  // No thread writes a block before all have read it: each waits here for the others' averages.
  const uint2 range = block_max(affine_range(m), partial, share, thread_id);
  const AffineGrid grid = affine_grid(range, kUnbiased, minus_zero);
  const uint4 words = random_words(prm, uint(step[0]), share.first);
  store_all(out, share, m);
  store_affine(m, words, false, grid, share, minus_zero, codes);
  store_grid(grid, share, scales, zero_points);
}

// prm: number of elements, elements of a block. weights: beta, 1 - beta.
template <typename T>
[[max_total_threads_per_threadgroup(512)]]
kernel void ema_sq_dynamic8(device const T* x          [[buffer(0)]],
                            device uchar* codes        [[buffer(1)]],
                            device float* out          [[buffer(2)]],
                            device float* absmax       [[buffer(3)]],
                            constant long* prm         [[buffer(4)]],
                            constant float* weights    [[buffer(5)]],
                            device const float* map    [[buffer(6)]],
                            device const uint* buckets [[buffer(7)]],
                            uint group         [[threadgroup_position_in_grid]],
                            uint thread_id     [[thread_index_in_threadgroup]],
                            uint group_threads [[threads_per_threadgroup]]) {
  threadgroup uint partial[kMaxThreads];
  const Share share = share_of(prm, group, thread_id, group_threads);
  const float minus_zero = negative_zero(prm[1]);
  uint values[kElements], v[kElements];
  load(x, share, values);
  restore_dynamic(codes, absmax, map, share, minus_zero, v);
  average_square(values, weights[0], weights[1], minus_zero, v);
  const DynamicScale scale = dynamic_scale(block_max(dynamic_range(v), partial, share, thread_id));
  store_all(out, share, v);
  store_dynamic(v, scale, false, buckets, share, minus_zero, codes);
  store_absmax(scale, share, absmax);
}

template [[host_name("ema_int8_float32")]] [[kernel]] decltype(ema_int8<float>) ema_int8<float>;
template [[host_name("ema_int8_float16")]] [[kernel]] decltype(ema_int8<half>) ema_int8<half>;
template [[host_name("ema_int8_bfloat16")]] [[kernel]] decltype(ema_int8<bfloat>) ema_int8<bfloat>;
template [[host_name("ema_sq_dynamic8_float32")]] [[kernel]]
decltype(ema_sq_dynamic8<float>) ema_sq_dynamic8<float>;
template [[host_name("ema_sq_dynamic8_float16")]] [[kernel]]
decltype(ema_sq_dynamic8<half>) ema_sq_dynamic8<half>;
template [[host_name("ema_sq_dynamic8_bfloat16")]] [[kernel]]
decltype(ema_sq_dynamic8<bfloat>) ema_sq_dynamic8<bfloat>;
