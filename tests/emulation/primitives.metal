// Small kernels, each around one primitive of the emulation. Not shipped: the tests compare them with numpy.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

constant constexpr uint kPerThread = 8;
constant float kTable[3] = {1.0f, 2.0f, 4.0f};

kernel void positions(device uint* out, uint3 position [[thread_position_in_grid]],
                      uint3 grid [[threads_per_grid]], ushort3 local [[thread_position_in_threadgroup]],
                      uint3 group [[threadgroup_position_in_grid]], uint3 size [[threads_per_threadgroup]],
                      uint3 groups [[threadgroups_per_grid]], uint index [[thread_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]],
                      uint simdgroups [[simdgroups_per_threadgroup]], uint width [[threads_per_simdgroup]]) {
  const ulong at = (ulong(position.z) * grid.y + position.y) * grid.x + position.x;
  device uint* row = out + at * 16ul;
  row[0] = position.x; row[1] = position.y; row[2] = position.z;
  row[3] = local.x; row[4] = local.y; row[5] = local.z;
  row[6] = group.x; row[7] = group.y; row[8] = group.z;
  row[9] = size.x * 10000u + size.y * 100u + size.z;
  row[10] = groups.x * 10000u + groups.y * 100u + groups.z;
  row[11] = index; row[12] = lane; row[13] = simdgroup; row[14] = simdgroups; row[15] = width;
}

kernel void reductions(device const int* x, device int* out, uint i [[thread_position_in_grid]]) {
  device int* row = out + ulong(i) * kPerThread;
  const int v = x[i];
  row[0] = simd_sum(v);
  row[1] = simd_min(v);
  row[2] = simd_max(v);
  row[3] = simd_and(v);
  row[4] = simd_or(v);
  row[5] = simd_xor(v);
  row[6] = simd_prefix_inclusive_sum(v);
  row[7] = simd_prefix_exclusive_sum(v);
}

kernel void shuffles(device const int* x, device int* out, uint i [[thread_position_in_grid]]) {
  device int* row = out + ulong(i) * kPerThread;
  const int v = x[i];
  row[0] = simd_shuffle(v, 5);
  row[1] = simd_shuffle_up(v, 3);
  row[2] = simd_shuffle_down(v, 3);
  row[3] = simd_shuffle_xor(v, 9);
  row[4] = simd_shuffle_rotate_up(v, 3);
  row[5] = simd_shuffle_rotate_down(v, 3);
  row[6] = simd_broadcast(v, 2);
  row[7] = simd_broadcast_first(v);
}

// Lanes whose value is negative leave first and are inactive from then on.
kernel void votes(device const int* x, device uint* out, uint i [[thread_position_in_grid]]) {
  device uint* row = out + ulong(i) * kPerThread;
  if (x[i] < 0) return;
  row[0] = uint(ulong(simd_ballot(x[i] > 10)));
  row[1] = uint(ulong(simd_active_threads_mask()));
  row[2] = simd_any(x[i] > 10) ? 1u : 0u;
  row[3] = simd_all(x[i] > 10) ? 1u : 0u;
  row[4] = simd_is_first() ? 1u : 0u;
  row[5] = uint(simd_sum(x[i]));
  row[6] = uint(simd_shuffle(x[i], 0));
}

template <typename T>
kernel void arithmetic(device const T* x, device const T* y, device T* out,
                       uint i [[thread_position_in_grid]]) {
  device T* row = out + ulong(i) * kPerThread;
  const T a = x[i], b = y[i];
  row[0] = a + b;
  row[1] = a * b;
  row[2] = a * b + a;
  row[3] = floor(a);
  row[4] = max(a, b);
  row[5] = clamp(a, T(-1.0f), T(1.0f));
  row[6] = -fabs(b);
  row[7] = rint(a);
}
template [[host_name("arithmetic_f32")]]
kernel void arithmetic<float>(device const float*, device const float*, device float*, uint);
template [[host_name("arithmetic_f16")]]
kernel void arithmetic<half>(device const half*, device const half*, device half*, uint);
template [[host_name("arithmetic_bf16")]] [[kernel]] decltype(arithmetic<bfloat>) arithmetic<bfloat>;

kernel void functions(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  device float* row = out + ulong(i) * kPerThread;
  const float a = x[i];
  row[0] = a / 3.0f;
  row[1] = sqrt(a);
  row[2] = precise::sqrt(a);
  row[3] = precise::divide(a, 3.0f);
  row[4] = fma(a, a, -1.0f);
  row[5] = 1.0f / a;
  row[6] = (float4(a) / float4(1.0f, 2.0f, 3.0f, 7.0f)).w;
  row[7] = kTable[i % 3u];
}

kernel void integers(device const uint* x, device uint* out, uint i [[thread_position_in_grid]]) {
  device uint* row = out + ulong(i) * kPerThread;
  const uint a = x[i];
  row[0] = mulhi(a, 0x9e3779b9u);
  row[1] = popcount(a);
  row[2] = clz(a);
  row[3] = ctz(a);
  row[4] = reverse_bits(a);
  row[5] = rotate(a, 5u);
  row[6] = as_type<uint>(as_type<float>(a));
  row[7] = extract_bits(a, 4u, 9u);
}

kernel void vectors(device const float4* x, device float4* out, constant float2& scale,
                    uint i [[thread_position_in_grid]]) {
  const float4 v = x[i];
  const float3 w = float3(v.wz, 1.0f);
  float4 r = float4(v.xy * scale, w.z, dot(v, float4(1.0f)));
  r.yx = r.xy;
  out[i] = r + vec<float, 4>(int4(as_type<uint4>(v) >> 31u));
}

kernel void counters(device atomic_uint* total, device atomic_int* largest, device atomic_float* sum,
                     device atomic_uint* claimed, uint i [[thread_position_in_grid]],
                     uint t [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint local;
  if (t == 0u) atomic_store_explicit(&local, 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&local, 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint count = atomic_load_explicit(&local, memory_order_relaxed);
  if (t == 0u) atomic_fetch_add_explicit(total, count, memory_order_relaxed);
  atomic_fetch_max_explicit(largest, int(i), memory_order_relaxed);
  atomic_fetch_add_explicit(sum, 0.5f, memory_order_relaxed);
  uint expected = 0u;
  atomic_compare_exchange_weak_explicit(claimed, &expected, i + 1u, memory_order_relaxed,
                                        memory_order_relaxed);
}

template <typename T>
kernel void product8(device const T* a, device const T* b, device float* out, constant long* prm) {
  simdgroup_matrix<T, 8, 8> left, right;
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  threadgroup float staged[64];
  simdgroup_load(left, a, ulong(prm[0]), ulong2(1, 2));
  simdgroup_load(right, b, 8, ulong2(0, 0), true);
  simdgroup_multiply_accumulate(sum, left, right, sum);
  simdgroup_store(sum, staged, 8);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_load(sum, staged, 8);
  simdgroup_multiply(sum, sum, simdgroup_float8x8(2.0f));
  simdgroup_store(sum, out, 8);
}
template [[host_name("product8_f32")]] [[kernel]] decltype(product8<float>) product8<float>;
template [[host_name("product8_f16")]] [[kernel]] decltype(product8<half>) product8<half>;

kernel void unwritten(device uint* out, uint i [[thread_position_in_grid]]) {
  threadgroup uint s[32];
  out[i] = s[i % 32u];
  s[i % 32u] = 7u;
}

kernel void scalars(device float* out, constant float& a, constant long& b, constant int& c, constant half& d,
                    constant uchar& e, constant float* list) {
  out[0] = a; out[1] = float(b); out[2] = float(c); out[3] = float(d); out[4] = float(e); out[5] = list[1];
}

[[max_total_threads_per_threadgroup(64)]]
kernel void limited(device float* out, uint i [[thread_position_in_grid]]) {
  threadgroup float s[100];
  s[i] = 1.0f;
  out[i] = s[i];
}
