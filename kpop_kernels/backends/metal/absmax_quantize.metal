// One threadgroup per block: absolute maximum, one scale, one int8 code for each element.
//
//   x       | block 0          | block 1          | short last block |
//   thread  | t, t+G, t+2G ... | t, t+G, t+2G ... |   G = threads of a group, at most 256
//
// Bound by bandwidth: the second pass over a block of at most 2048 elements reads from the cache.
#include "exact.metal"

constant constexpr uint kMaxThreads = 256;
constant constexpr uint kMaxSimdgroups = kMaxThreads / 32;

// floor(x / scale + 0.5) within the symmetric range, with one rounding in the product and one in the sum.
static inline char nearest_code(float x, float inverse_scale) {
  return char(clamp(round_half_up(multiply_rounded(x, inverse_scale)), -127, 127));
}

// prm: number of elements, elements of a block.
// A block that holds NaN or infinity has the scale NaN and codes 0; where the scale would be below 2^-126,
// scale and codes are 0.
template <typename T>
[[max_total_threads_per_threadgroup(256)]]
kernel void absmax_quantize(device const T* x       [[buffer(0)]],
                            device char* codes      [[buffer(1)]],
                            device uint* scales     [[buffer(2)]],  // float bits: NaN survives fast math
                            constant long* prm      [[buffer(3)]],
                            uint block      [[threadgroup_position_in_grid]],
                            uint thread_id  [[thread_index_in_threadgroup]],
                            uint threads    [[threads_per_threadgroup]],
                            uint lane       [[thread_index_in_simdgroup]],
                            uint simdgroup  [[simdgroup_index_in_threadgroup]],
                            uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup uint peaks[kMaxSimdgroups];
  const ulong first = ulong(block) * ulong(prm[1]);
  const uint count = uint(min(ulong(prm[1]), ulong(prm[0]) - first));

  uint peak = 0u;
  for (uint i = thread_id; i < count; i += threads) {
    peak = max(peak, magnitude(widen(x[first + i])));
  }
  peak = simd_max(peak);
  if (lane == 0u) peaks[simdgroup] = peak;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint s = 0u; s < simdgroups; ++s) {
    peak = max(peak, peaks[s]);
  }

  const bool finite = peak < kInfinity;
  const float scale = divide_by_127(as_type<float>(finite ? peak : 0u));
  if (thread_id == 0u) scales[block] = finite ? as_type<uint>(scale) : kQuietNan;
  const bool empty = as_type<uint>(scale) == 0u;
  const float inverse_scale = empty ? 0.0f : reciprocal_rounded(scale);
  for (uint i = thread_id; i < count; i += threads) {
    codes[first + i] = empty ? char(0) : nearest_code(widen(x[first + i]), inverse_scale);
  }
}

template [[host_name("absmax_quantize_float32")]] [[kernel]]
decltype(absmax_quantize<float>) absmax_quantize<float>;
template [[host_name("absmax_quantize_float16")]] [[kernel]]
decltype(absmax_quantize<half>) absmax_quantize<half>;
template [[host_name("absmax_quantize_bfloat16")]] [[kernel]]
decltype(absmax_quantize<bfloat>) absmax_quantize<bfloat>;
