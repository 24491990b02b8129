// Adam in a rotated basis: Adam is the end of the second product, the weight update the end of the last one.
//
//   T = Q_L^T G      kron_rotate.metal    in g, out 4
//   N = adam(T Q_R)  adam_product         in 4, moments in and out 16, out 4
//   U = Q_L N        kron_rotate.metal    in 4, out 4
//   W -= lr U Q_R^T  weight_update.metal  in 4, W in and out 2 w
//
// Bytes an element, for gradients of g and parameters of w bytes: g + 2 w + 16 that a step must move, and 24
// of the float32 matrices between products; the factors add 8 (m^2 + n^2). As passes of their own, Adam and the
// update would move 16 more: G' and U, each out and in. With one factor T and U are not there: g + 2 w + 24.
//
// A first moment in the original basis is averaged by a pass instead, which reads the gradient once more, and
// rotated by as many products, whose result N replaces: g + 20 more, with one factor g + 12. Without factors one
// pass moves g + 2 w + 16.
#include "adam_update.metal"
#include "passes.metal"
#include "product.metal"

// beta old + (1 - beta) x.
static inline float weighted(float beta, float old, float one_minus_beta, float x, float minus_zero) {
  return multiply_rounded(beta, old, minus_zero) + multiply_rounded(one_minus_beta, x, minus_zero);
}

// Averages the second moment and returns N for a first moment that is averaged.
static inline uint adam_of_averaged(float g, float m, device float* exp_avg_sq, ulong at,
                                    constant float* weights, Normalization u, float minus_zero) {
  const float v = weighted(weights[2], exp_avg_sq[at], weights[3], g * g, minus_zero);
  store(exp_avg_sq, at, float_bits(v));
  return normalized(float_bits(m), float_bits(v), u, minus_zero);
}

// Averages both moments and returns N.
static inline uint adam_of(float g, device float* exp_avg, device float* exp_avg_sq, ulong at,
                           constant float* weights, Normalization u, float minus_zero) {
  const float m = weighted(weights[0], exp_avg[at], weights[1], g, minus_zero);
  store(exp_avg, at, float_bits(m));
  return adam_of_averaged(g, m, exp_avg_sq, at, weights, u, minus_zero);
}

// prm: see product.metal, then whether to ascend, and whether N holds the rotated first moment.
// weights, update: see adam_update.metal.
template <typename L, typename R>
[[max_total_threads_per_threadgroup(128)]]
kernel void adam_product(device const L* A           [[buffer(0)]],
                         device const R* B           [[buffer(1)]],
                         device float* exp_avg       [[buffer(2)]],
                         device float* exp_avg_sq    [[buffer(3)]],
                         device float* N             [[buffer(4)]],
                         constant long* prm          [[buffer(5)]],
                         constant float* weights     [[buffer(6)]],
                         constant float* update      [[buffer(7)]],
                         uint group     [[threadgroup_position_in_grid]],
                         uint thread_id [[thread_index_in_threadgroup]],
                         uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float staged[kStaged];
  if (is_left_out(update)) return;
  const Tile tile = tile_of_rectangle(prm, group);
  const float minus_zero = negative_zero(prm[1]);
  const Normalization u = normalization_of(weights, update);
  Sums sums;
  multiply_tile(A, B, prm, tile, staged, thread_id, simdgroup, sums);
  UNROLL for (uint part = 0u; part < 2u; ++part) {
    UNROLL for (uint q = 0u; q < kOwned; ++q) {
      const Element own = element_of(prm, tile, part, q, thread_id);
      if (!own.exists) continue;
      const float g = prm[kOwn] != 0 ? -sums.at[part][q] : sums.at[part][q];
      const uint bits =
          prm[kOwn + 1u] != 0
              ? adam_of_averaged(g, N[own.at], exp_avg_sq, own.at, weights, u, minus_zero)
              : adam_of(g, exp_avg, exp_avg_sq, own.at, weights, u, minus_zero);
      store(N, own.at, bits);
    }
  }
}

// prm: number of elements, whether to ascend.
template <typename G>
[[max_total_threads_per_threadgroup(256)]]
kernel void average(device const G* grad        [[buffer(0)]],
                    device float* exp_avg       [[buffer(1)]],
                    constant long* prm          [[buffer(2)]],
                    constant float* weights     [[buffer(3)]],
                    constant float* update      [[buffer(4)]],
                    uint group     [[threadgroup_position_in_grid]],
                    uint thread_id [[thread_index_in_threadgroup]]) {
  if (is_left_out(update)) return;
  const float minus_zero = negative_zero(prm[0]);
  for (uint i = 0u; i < kPassElements; ++i) {
    const ulong at = pass_element(group, thread_id, i);
    if (at >= ulong(prm[0])) break;
    const float g = as_type<float>(float_bits(grad[at]) ^ (prm[1] != 0 ? kSign : 0u));
    store(exp_avg, at, float_bits(weighted(weights[0], exp_avg[at], weights[1], g, minus_zero)));
  }
}

// prm: number of elements, whether to ascend.
template <typename P, typename G>
[[max_total_threads_per_threadgroup(256)]]
kernel void adam_pass(device P* param             [[buffer(0)]],
                      device const G* grad        [[buffer(1)]],
                      device float* exp_avg       [[buffer(2)]],
                      device float* exp_avg_sq    [[buffer(3)]],
                      constant long* prm          [[buffer(4)]],
                      constant float* weights     [[buffer(5)]],
                      constant float* update      [[buffer(6)]],
                      uint group     [[threadgroup_position_in_grid]],
                      uint thread_id [[thread_index_in_threadgroup]]) {
  if (is_left_out(update)) return;
  const float minus_zero = negative_zero(prm[0]);
  const Normalization u = normalization_of(weights, update);
  for (uint i = 0u; i < kPassElements; ++i) {
    const ulong at = pass_element(group, thread_id, i);
    if (at >= ulong(prm[0])) break;
    const float g = as_type<float>(float_bits(grad[at]) ^ (prm[1] != 0 ? kSign : 0u));
    const uint N = adam_of(g, exp_avg, exp_avg_sq, at, weights, u, minus_zero);
    store(param, at, moved(float_bits(param[at]), N, update, minus_zero));
  }
}

template [[host_name("adam_product_float32_float32")]] [[kernel]]
decltype(adam_product<float, float>) adam_product<float, float>;
template [[host_name("adam_product_float32_float16")]] [[kernel]]
decltype(adam_product<float, half>) adam_product<float, half>;
template [[host_name("adam_product_float16_float32")]] [[kernel]]
decltype(adam_product<half, float>) adam_product<half, float>;
template [[host_name("adam_product_float32_bfloat16")]] [[kernel]]
decltype(adam_product<float, bfloat>) adam_product<float, bfloat>;
template [[host_name("adam_product_bfloat16_float32")]] [[kernel]]
decltype(adam_product<bfloat, float>) adam_product<bfloat, float>;
template [[host_name("average_float32")]] [[kernel]]
decltype(average<float>) average<float>;
template [[host_name("average_float16")]] [[kernel]]
decltype(average<half>) average<half>;
template [[host_name("average_bfloat16")]] [[kernel]]
decltype(average<bfloat>) average<bfloat>;
template [[host_name("adam_pass_float32_float32")]] [[kernel]]
decltype(adam_pass<float, float>) adam_pass<float, float>;
template [[host_name("adam_pass_float32_float16")]] [[kernel]]
decltype(adam_pass<float, half>) adam_pass<float, half>;
template [[host_name("adam_pass_float32_bfloat16")]] [[kernel]]
decltype(adam_pass<float, bfloat>) adam_pass<float, bfloat>;
template [[host_name("adam_pass_float16_float32")]] [[kernel]]
decltype(adam_pass<half, float>) adam_pass<half, float>;
template [[host_name("adam_pass_float16_float16")]] [[kernel]]
decltype(adam_pass<half, half>) adam_pass<half, half>;
template [[host_name("adam_pass_float16_bfloat16")]] [[kernel]]
decltype(adam_pass<half, bfloat>) adam_pass<half, bfloat>;
template [[host_name("adam_pass_bfloat16_float32")]] [[kernel]]
decltype(adam_pass<bfloat, float>) adam_pass<bfloat, float>;
template [[host_name("adam_pass_bfloat16_float16")]] [[kernel]]
decltype(adam_pass<bfloat, half>) adam_pass<bfloat, half>;
template [[host_name("adam_pass_bfloat16_bfloat16")]] [[kernel]]
decltype(adam_pass<bfloat, bfloat>) adam_pass<bfloat, bfloat>;
