// To and from blocks on the dynamic map. Per element 4 (float) or 2 bytes on one side, 1 on the other, and 4
// bytes a block: the minimum. Finding a code is one look-up in a table of 12 KB that stays in the cache.
#include "dynamic.metal"

// prm: number of elements, elements of a block, whether the map is signed.
template <typename T>
[[max_total_threads_per_threadgroup(512)]]
kernel void quantize_dynamic8(device const T* x          [[buffer(0)]],
                              device uchar* codes        [[buffer(1)]],
                              device float* absmax       [[buffer(2)]],
                              constant long* prm         [[buffer(3)]],
                              device const uint* buckets [[buffer(4)]],
                              uint group         [[threadgroup_position_in_grid]],
                              uint thread_id     [[thread_index_in_threadgroup]],
                              uint group_threads [[threads_per_threadgroup]]) {
  threadgroup uint partial[kMaxThreads];
  const Share share = share_of(prm, group, thread_id, group_threads);
  uint bits[kElements];
  load(x, share, bits);
  const DynamicScale scale = dynamic_scale(block_max(dynamic_range(bits), partial, share, thread_id));
  store_dynamic(bits, scale, prm[2] != 0, buckets, share, negative_zero(prm[1]), codes);
  store_absmax(scale, share, absmax);
}

// prm: number of elements, elements of a block.
template <typename T>
kernel void dequantize_dynamic8(device const uchar* codes  [[buffer(0)]],
                                device T* out              [[buffer(1)]],
                                device const float* absmax [[buffer(2)]],
                                constant long* prm         [[buffer(3)]],
                                device const float* map    [[buffer(4)]],
                                uint group         [[threadgroup_position_in_grid]],
                                uint thread_id     [[thread_index_in_threadgroup]],
                                uint group_threads [[threads_per_threadgroup]]) {
  const Share share = share_of(prm, group, thread_id, group_threads);
  uint bits[kElements];
  restore_dynamic(codes, absmax, map, share, negative_zero(prm[1]), bits);
  store_all(out, share, bits);
}

template [[host_name("quantize_dynamic8_float32")]] [[kernel]]
decltype(quantize_dynamic8<float>) quantize_dynamic8<float>;
template [[host_name("quantize_dynamic8_float16")]] [[kernel]]
decltype(quantize_dynamic8<half>) quantize_dynamic8<half>;
template [[host_name("quantize_dynamic8_bfloat16")]] [[kernel]]
decltype(quantize_dynamic8<bfloat>) quantize_dynamic8<bfloat>;
template [[host_name("dequantize_dynamic8_float32")]] [[kernel]]
decltype(dequantize_dynamic8<float>) dequantize_dynamic8<float>;
template [[host_name("dequantize_dynamic8_float16")]] [[kernel]]
decltype(dequantize_dynamic8<half>) dequantize_dynamic8<half>;
template [[host_name("dequantize_dynamic8_bfloat16")]] [[kernel]]
decltype(dequantize_dynamic8<bfloat>) dequantize_dynamic8<bfloat>;
