// W = decay W - lr U at the end of the product U = A B, or of U itself where there are no factors.
//
// Bytes moved an element, for weights of w bytes: 2 w, and 4 of the operand that is not a factor; U is never in
// memory.
#include "adam_update.metal"
#include "passes.metal"
#include "product.metal"

// prm: see product.metal. update: see adam_update.metal.
template <typename P>
[[max_total_threads_per_threadgroup(128)]]
kernel void update_product(device const float* A       [[buffer(0)]],
                           device const float* B       [[buffer(1)]],
                           device P* param             [[buffer(2)]],
                           constant long* prm          [[buffer(3)]],
                           constant float* update      [[buffer(4)]],
                           uint group     [[threadgroup_position_in_grid]],
                           uint thread_id [[thread_index_in_threadgroup]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float staged[kStaged];
  if (is_left_out(update)) return;
  const Tile tile = tile_of_rectangle(prm, group);
  const float minus_zero = negative_zero(prm[1]);
  Sums sums;
  multiply_tile(A, B, prm, tile, staged, thread_id, simdgroup, sums);
  UNROLL for (uint part = 0u; part < 2u; ++part) {
    UNROLL for (uint q = 0u; q < kOwned; ++q) {
      const Element own = element_of(prm, tile, part, q, thread_id);
      if (!own.exists) continue;
      const uint old = float_bits(param[own.at]);
      store(param, own.at, moved(old, float_bits(sums.at[part][q]), update, minus_zero));
    }
  }
}

// prm: number of elements.
template <typename P, typename G>
[[max_total_threads_per_threadgroup(256)]]
kernel void update_pass(device P* param             [[buffer(0)]],
                        device const G* direction   [[buffer(1)]],
                        constant long* prm          [[buffer(2)]],
                        constant float* update      [[buffer(3)]],
                        uint group     [[threadgroup_position_in_grid]],
                        uint thread_id [[thread_index_in_threadgroup]]) {
  if (is_left_out(update)) return;
  const float minus_zero = negative_zero(prm[0]);
  for (uint i = 0u; i < kPassElements; ++i) {
    const ulong at = pass_element(group, thread_id, i);
    if (at >= ulong(prm[0])) break;
    store(param, at, moved(float_bits(param[at]), float_bits(direction[at]), update, minus_zero));
  }
}

template [[host_name("update_product_float32")]] [[kernel]]
decltype(update_product<float>) update_product<float>;
template [[host_name("update_product_float16")]] [[kernel]]
decltype(update_product<half>) update_product<half>;
template [[host_name("update_product_bfloat16")]] [[kernel]]
decltype(update_product<bfloat>) update_product<bfloat>;
template [[host_name("update_pass_float32_float32")]] [[kernel]]
decltype(update_pass<float, float>) update_pass<float, float>;
template [[host_name("update_pass_float32_float16")]] [[kernel]]
decltype(update_pass<float, half>) update_pass<float, half>;
template [[host_name("update_pass_float32_bfloat16")]] [[kernel]]
decltype(update_pass<float, bfloat>) update_pass<float, bfloat>;
template [[host_name("update_pass_float16_float32")]] [[kernel]]
decltype(update_pass<half, float>) update_pass<half, float>;
template [[host_name("update_pass_float16_float16")]] [[kernel]]
decltype(update_pass<half, half>) update_pass<half, half>;
template [[host_name("update_pass_float16_bfloat16")]] [[kernel]]
decltype(update_pass<half, bfloat>) update_pass<half, bfloat>;
template [[host_name("update_pass_bfloat16_float32")]] [[kernel]]
decltype(update_pass<bfloat, float>) update_pass<bfloat, float>;
template [[host_name("update_pass_bfloat16_float16")]] [[kernel]]
decltype(update_pass<bfloat, half>) update_pass<bfloat, half>;
template [[host_name("update_pass_bfloat16_bfloat16")]] [[kernel]]
decltype(update_pass<bfloat, bfloat>) update_pass<bfloat, bfloat>;
