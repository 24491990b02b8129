// To and from blocks on an affine grid. Per element 4 (float) or 2 bytes on one side, 1 on the other, and 5
// bytes a block: the minimum, and what bounds both kernels.
#include "affine.metal"

// prm: number of elements, elements of a block, seed, stream, offset, steps of the grid, whether to round to
// nearest.
template <typename T>
[[max_total_threads_per_threadgroup(512)]]
kernel void quantize_int8(device const T* x         [[buffer(0)]],
                          device uchar* codes       [[buffer(1)]],
                          device float* scales      [[buffer(2)]],
                          device uchar* zero_points [[buffer(3)]],
                          constant long* prm        [[buffer(4)]],
                          constant long* step       [[buffer(5)]],
                          uint group         [[threadgroup_position_in_grid]],
                          uint thread_id     [[thread_index_in_threadgroup]],
                          uint group_threads [[threads_per_threadgroup]]) {
  threadgroup uint2 partial[kMaxThreads];
  const Share share = share_of(prm, group, thread_id, group_threads);
  const float minus_zero = negative_zero(prm[1]);
  uint bits[kElements];
  load(x, share, bits);
  const uint2 range = block_max(affine_range(bits), partial, share, thread_id);
  const AffineGrid grid = affine_grid(range, uint(prm[5]), minus_zero);
  const bool nearest = prm[6] != 0;
  const uint4 words = nearest ? uint4(0u) : random_words(prm, uint(step[0]), share.first);
  store_affine(bits, words, nearest, grid, share, minus_zero, codes);
  store_grid(grid, share, scales, zero_points);
}

// prm: number of elements, elements of a block.
template <typename T>
kernel void dequantize_int8(device const uchar* codes       [[buffer(0)]],
                            device T* out                   [[buffer(1)]],
                            device const float* scales      [[buffer(2)]],
                            device const uchar* zero_points [[buffer(3)]],
                            constant long* prm              [[buffer(4)]],
                            uint group         [[threadgroup_position_in_grid]],
                            uint thread_id     [[thread_index_in_threadgroup]],
                            uint group_threads [[threads_per_threadgroup]]) {
  const Share share = share_of(prm, group, thread_id, group_threads);
  uint bits[kElements];
  restore_affine(codes, scales, zero_points, share, negative_zero(prm[1]), bits);
  store_all(out, share, bits);
}

template [[host_name("quantize_int8_float32")]] [[kernel]]
decltype(quantize_int8<float>) quantize_int8<float>;
template [[host_name("quantize_int8_float16")]] [[kernel]]
decltype(quantize_int8<half>) quantize_int8<half>;
template [[host_name("quantize_int8_bfloat16")]] [[kernel]]
decltype(quantize_int8<bfloat>) quantize_int8<bfloat>;
template [[host_name("dequantize_int8_float32")]] [[kernel]]
decltype(dequantize_int8<float>) dequantize_int8<float>;
template [[host_name("dequantize_int8_float16")]] [[kernel]]
decltype(dequantize_int8<half>) dequantize_int8<half>;
template [[host_name("dequantize_int8_bfloat16")]] [[kernel]]
decltype(dequantize_int8<bfloat>) dequantize_int8<bfloat>;
