// What this GPU and this compiler really compute. The host knows every answer and compares bits.
#include "exact.metal"

constant constexpr uint kOperands = 3;
constant constexpr uint kResults = 8;
constant constexpr uint kSums = 2;

kernel void canary(device const uint* operands [[buffer(0)]],
                   device uint* results        [[buffer(1)]],
                   uint i [[thread_position_in_grid]]) {
  const ulong in = ulong(i) * kOperands, out = ulong(i) * kResults;
  const float a = as_type<float>(operands[in]);
  const float b = as_type<float>(operands[in + 1u]);
  const float c = as_type<float>(operands[in + 2u]);
  results[out] = as_type<uint>(a * b);
  results[out + 1u] = as_type<uint>(a + b);
  results[out + 2u] = as_type<uint>(a / b);
  results[out + 3u] = as_type<uint>(1.0f / b);
  results[out + 4u] = as_type<uint>(fma(a, b, c));
  results[out + 5u] = as_type<uint>(reciprocal_rounded(b));
  results[out + 6u] = as_type<uint>(divide_rounded(a, 254u));
  results[out + 7u] = fraction16(c);
}

// A kernel of its own: where a product has a second use, it may not be worth a fused operation.
// prm: number of threads.
kernel void canary_sums(device const uint* operands [[buffer(0)]],
                        device uint* results        [[buffer(1)]],
                        constant long* prm          [[buffer(2)]],
                        uint i [[thread_position_in_grid]]) {
  const ulong in = ulong(i) * kOperands, out = ulong(i) * kSums;
  const float a = as_type<float>(operands[in]);
  const float b = as_type<float>(operands[in + 1u]);
  const float c = as_type<float>(operands[in + 2u]);
  results[out] = as_type<uint>(a * b + c);
  results[out + 1u] = as_type<uint>(multiply_rounded(a, b, negative_zero(prm[0])) + c);
}
