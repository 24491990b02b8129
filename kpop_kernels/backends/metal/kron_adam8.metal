// Adam in a rotated basis with both moments in blocks: a pass over the blocks between the products.
//
// Bytes an element: the rotated gradient in and N out in its place, 4 each, 2 of codes in and 2 out; 9 a block in and
// out. A first moment in the original basis has a pass of its own over the gradient, of g bytes, and is rotated by
// as many products: g + 12 more.
#include "adam8_moments.metal"
#include "adam_update.metal"

// prm: number of elements, elements of a block, seed, stream, offset, whether to ascend.
// weights, update: see adam_update.metal.
[[max_total_threads_per_threadgroup(512)]]
kernel void direction8(device float* direction        [[buffer(0)]],
                       device uchar* m_codes          [[buffer(1)]],
                       device uchar* v_codes          [[buffer(2)]],
                       device float* m_scales         [[buffer(3)]],
                       device uchar* m_zero_points    [[buffer(4)]],
                       device float* v_absmax         [[buffer(5)]],
                       constant long* prm             [[buffer(6)]],
                       constant float* weights        [[buffer(7)]],
                       constant float* update         [[buffer(8)]],
                       constant long* step            [[buffer(9)]],
                       device const float* map        [[buffer(10)]],
                       device const uint* buckets     [[buffer(11)]],
                       uint group         [[threadgroup_position_in_grid]],
                       uint thread_id     [[thread_index_in_threadgroup]],
                       uint group_threads [[threads_per_threadgroup]]) {
  threadgroup uint4 partial[kMaxThreads];
  if (is_left_out(update)) return;
  const Share share = share_of(prm, group, thread_id, group_threads);
  const float minus_zero = negative_zero(prm[1]);
  const Normalization u = normalization_of(weights, update);
  uint g[kElements], m[kElements], v[kElements];
  load(direction, share, g);
  average_blocks(g, m_codes, v_codes, m_scales, m_zero_points, v_absmax, prm, weights, step, map, buckets, share,
                 minus_zero, partial, thread_id, m, v);
  for (uint i = 0u; i < kElements; ++i) {
    g[i] = normalized(m[i], v[i], u, minus_zero);
  }
  store_all(direction, share, g);
}

// Averages a first moment in the original basis, and leaves it in `out` to be rotated.
template <typename G>
[[max_total_threads_per_threadgroup(512)]]
kernel void first_moment8(device const G* grad        [[buffer(0)]],
                          device float* out           [[buffer(1)]],
                          device uchar* codes         [[buffer(2)]],
                          device float* scales        [[buffer(3)]],
                          device uchar* zero_points   [[buffer(4)]],
                          constant long* prm          [[buffer(5)]],
                          constant float* weights     [[buffer(6)]],
                          constant float* update      [[buffer(7)]],
                          constant long* step         [[buffer(8)]],
                          uint group         [[threadgroup_position_in_grid]],
                          uint thread_id     [[thread_index_in_threadgroup]],
                          uint group_threads [[threads_per_threadgroup]]) {
  threadgroup uint2 partial[kMaxThreads];
  if (is_left_out(update)) return;
  const Share share = share_of(prm, group, thread_id, group_threads);
  const float minus_zero = negative_zero(prm[1]);
  uint g[kElements], m[kElements];
  load(grad, share, g);
  turn(g, prm);
  restore_affine(codes, scales, zero_points, share, minus_zero, m);
  average(g, weights[0], weights[1], minus_zero, m);
  const uint2 range = block_max(affine_range(m), partial, share, thread_id);
  const AffineGrid grid = affine_grid(range, kUnbiased, minus_zero);
  store_affine(m, random_words(prm, uint(step[0]), share.first), false, grid, share, minus_zero, codes);
  store_grid(grid, share, scales, zero_points);
  store_all(out, share, m);
}

// Averages the second moment with the rotated gradient, and puts N in the place of the rotated first moment.
[[max_total_threads_per_threadgroup(512)]]
kernel void second_moment8(device const float* rotated [[buffer(0)]],
                           device float* direction     [[buffer(1)]],
                           device uchar* codes         [[buffer(2)]],
                           device float* absmax        [[buffer(3)]],
                           constant long* prm          [[buffer(4)]],
                           constant float* weights     [[buffer(5)]],
                           constant float* update      [[buffer(6)]],
                           device const float* map     [[buffer(7)]],
                           device const uint* buckets  [[buffer(8)]],
                           uint group         [[threadgroup_position_in_grid]],
                           uint thread_id     [[thread_index_in_threadgroup]],
                           uint group_threads [[threads_per_threadgroup]]) {
  threadgroup uint partial[kMaxThreads];
  if (is_left_out(update)) return;
  const Share share = share_of(prm, group, thread_id, group_threads);
  const float minus_zero = negative_zero(prm[1]);
  const Normalization u = normalization_of(weights, update);
  uint g[kElements], m[kElements], v[kElements];
  load(rotated, share, g);
  load(direction, share, m);
  restore_dynamic(codes, absmax, map, share, minus_zero, v);
  average_square(g, weights[2], weights[3], minus_zero, v);
  const DynamicScale scale = dynamic_scale(block_max(dynamic_range(v), partial, share, thread_id));
  store_dynamic(v, scale, false, buckets, share, minus_zero, codes);
  store_absmax(scale, share, absmax);
  for (uint i = 0u; i < kElements; ++i) {
    m[i] = normalized(m[i], v[i], u, minus_zero);
  }
  store_all(direction, share, m);
}

template [[host_name("first_moment8_float32")]] [[kernel]] decltype(first_moment8<float>) first_moment8<float>;
template [[host_name("first_moment8_float16")]] [[kernel]] decltype(first_moment8<half>) first_moment8<half>;
template [[host_name("first_moment8_bfloat16")]] [[kernel]]
decltype(first_moment8<bfloat>) first_moment8<bfloat>;
