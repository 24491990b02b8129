// out = A B for two matrices of any strides: a side of a rotation.
//
// Q_L^T G Q_R is two of them. Bytes moved for G of m x n, with s bytes an element: G s, out s, and the float32
// matrix between the products 4 + 4 an element, besides 4 (m^2 + n^2) of the factors.
#include "product.metal"

// prm: see product.metal.
template <typename L, typename R, typename T>
[[max_total_threads_per_threadgroup(128)]]
kernel void product(device const L* A   [[buffer(0)]],
                    device const R* B   [[buffer(1)]],
                    device T* out       [[buffer(2)]],
                    constant long* prm  [[buffer(3)]],
                    uint group     [[threadgroup_position_in_grid]],
                    uint thread_id [[thread_index_in_threadgroup]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float staged[kStaged];
  const Tile tile = tile_of_rectangle(prm, group);
  Sums sums;
  multiply_tile(A, B, prm, tile, staged, thread_id, simdgroup, sums);
  UNROLL for (uint part = 0u; part < 2u; ++part) {
    UNROLL for (uint q = 0u; q < kOwned; ++q) {
      const Element own = element_of(prm, tile, part, q, thread_id);
      if (own.exists) store(out, own.at, float_bits(sums.at[part][q]));
    }
  }
}

template [[host_name("product_float32_float32_float32")]] [[kernel]]
decltype(product<float, float, float>) product<float, float, float>;
template [[host_name("product_float32_float16_float32")]] [[kernel]]
decltype(product<float, half, float>) product<float, half, float>;
template [[host_name("product_float32_float32_float16")]] [[kernel]]
decltype(product<float, float, half>) product<float, float, half>;
template [[host_name("product_float32_float16_float16")]] [[kernel]]
decltype(product<float, half, half>) product<float, half, half>;
template [[host_name("product_float16_float32_float16")]] [[kernel]]
decltype(product<half, float, half>) product<half, float, half>;
template [[host_name("product_float32_bfloat16_float32")]] [[kernel]]
decltype(product<float, bfloat, float>) product<float, bfloat, float>;
template [[host_name("product_float32_float32_bfloat16")]] [[kernel]]
decltype(product<float, float, bfloat>) product<float, float, bfloat>;
template [[host_name("product_float32_bfloat16_bfloat16")]] [[kernel]]
decltype(product<float, bfloat, bfloat>) product<float, bfloat, bfloat>;
template [[host_name("product_bfloat16_float32_bfloat16")]] [[kernel]]
decltype(product<bfloat, float, bfloat>) product<bfloat, float, bfloat>;
template [[host_name("product_float16_float32_float32")]] [[kernel]]
decltype(product<half, float, float>) product<half, float, float>;
template [[host_name("product_bfloat16_float32_float32")]] [[kernel]]
decltype(product<bfloat, float, float>) product<bfloat, float, float>;
