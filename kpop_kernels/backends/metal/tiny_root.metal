// Inverse roots of matrices up to order 8 in pairs of floats, a thread an entry: Metal has no double, and the
// iteration has few roundings there to average over, so that float would lose several times more than it does at
// larger orders.
//
//   P = Z Y;   Y <- a Y + b (Y P + P^T Y) / 2;   Z <- a Z + b (P Z + Z P^T) / 2
//
// Reads and writes 4 n^2 bytes a matrix: bound by latency.
#include "root_scale.metal"

constant constexpr uint kSide = 8u;
constant constexpr uint kEntries = 64u;

// 1 and -0 that the compiler does not know: fast math would take the error of a rounding for zero.
struct Opaque {
  float one, minus_zero;
};

// a + b = x + y, where x is the rounded sum.
static inline float2 exact_sum(float a, float b, Opaque opaque) {
  const float sum = fma(a, opaque.one, b);
  const float of_b = fma(-a, opaque.one, sum);
  const float of_a = fma(-of_b, opaque.one, sum);
  return float2(sum, fma(-of_a, opaque.one, a) + fma(-of_b, opaque.one, b));
}

// The same where |a| >= |b| or a is 0.
static inline float2 ordered_sum(float a, float b, Opaque opaque) {
  const float sum = fma(a, opaque.one, b);
  const float of_b = fma(-a, opaque.one, sum);
  return float2(sum, fma(-of_b, opaque.one, b));
}

static inline float2 add(float2 a, float2 b, Opaque opaque) {
  const float2 sum = exact_sum(a.x, b.x, opaque);
  return ordered_sum(sum.x, sum.y + (a.y + b.y), opaque);
}

static inline float2 multiply(float2 a, float2 b, Opaque opaque) {
  const float product = multiply_rounded(a.x, b.x, opaque.minus_zero);
  const float error = fma(a.x, b.x, -product);
  return ordered_sum(product, fma(a.x, b.y, fma(a.y, b.x, error)), opaque);
}

// Which entry a thread computes, and what it computes with.
struct Entry {
  uint index, row, column, mirrored, n;
  bool holds;
  Opaque opaque;
};

// What the threads of a group share.
struct Matrices {
  float2 Y[64], Z[64], P[64], YP[64], PZ[64];
};

// The calling thread's entry of L R.
static inline float2 product(const threadgroup float2* L, const threadgroup float2* R, Entry own) {
  float2 sum = float2(0.0f, 0.0f);
  for (uint k = 0u; k < own.n; ++k) {
    sum = add(sum, multiply(L[own.row * kSide + k], R[k * kSide + own.column], own.opaque), own.opaque);
  }
  return sum;
}

// a X + b (XP + its transpose) / 2.
static inline float2 next(float a, float2 x, float b, float2 xp, float2 mirrored, Entry own) {
  const float2 kept = multiply(float2(a, 0.0f), x, own.opaque);
  const float2 added = multiply(float2(0.5f * b, 0.0f), add(xp, mirrored, own.opaque), own.opaque);
  return add(kept, added, own.opaque);
}

// The smaller of the Wolkowicz-Styan and the Collatz-Wielandt bound, with a margin; each thread finds all of it.
static inline float tiny_bound(const threadgroup float2* X, uint n) {
  float sums[8];
  float trace = 0.0f, square = 0.0f;
  for (uint r = 0u; r < n; ++r) {
    float sum = 0.0f;
    for (uint c = 0u; c < n; ++c) {
      const float x = X[r * kSide + c].x;
      sum += fabs(x);
      square = fma(x, x, square);
    }
    sums[r] = max(sum, kSmallest);
    trace += X[r * kSide + r].x;
  }
  float collatz_wielandt = 0.0f;
  for (uint r = 0u; r < n; ++r) {
    float ratio = 0.0f;
    for (uint c = 0u; c < n; ++c) {
      ratio = fma(sums[c], fabs(X[r * kSide + c].x), ratio);
    }
    collatz_wielandt = max(collatz_wielandt, ratio / sums[r]);
  }
  const float mean = trace / float(n), rms = precise::sqrt(square / float(n));
  const float variance = max((rms - mean) * (rms + mean), 0.0f);
  return kSafety * min(mean + precise::sqrt(variance * float(n - 1u)), collatz_wielandt);
}

// Takes Y to Y^(1/2) and Z, whatever it was, to Y^(-1/2).
static inline void iterate(threadgroup Matrices& m, constant float* schedule, uint steps, Entry own) {
  m.Z[own.index] = float2(own.holds && own.row == own.column ? 1.0f : 0.0f, 0.0f);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint step = 0u; step < steps; ++step) {
    const float a = schedule[2u * step], b = schedule[2u * step + 1u];
    m.P[own.index] = product(m.Z, m.Y, own);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    m.YP[own.index] = product(m.Y, m.P, own);
    m.PZ[own.index] = product(m.P, m.Z, own);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    m.Y[own.index] = next(a, m.Y[own.index], b, m.YP[own.index], m.YP[own.mirrored], own);
    m.Z[own.index] = next(a, m.Z[own.index], b, m.PZ[own.index], m.PZ[own.mirrored], own);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// Y <- factor X + shift I, where X is the calling thread's entry.
static inline void set_Y(threadgroup Matrices& m, float2 x, float factor, float shift, Entry own) {
  const float2 scaled = multiply(float2(factor, 0.0f), x, own.opaque);
  const float added = own.holds && own.row == own.column ? shift : 0.0f;
  m.Y[own.index] = add(scaled, float2(added, 0.0f), own.opaque);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// prm: order, p, steps, steps of the second stage. options: damping, relative damping, (a, b) of every step.
[[max_total_threads_per_threadgroup(64)]]
kernel void tiny_root(device const float* A      [[buffer(0)]],
                      device float* out          [[buffer(1)]],
                      device float* bounds       [[buffer(2)]],
                      constant long* prm         [[buffer(3)]],
                      constant float* options    [[buffer(4)]],
                      uint group     [[threadgroup_position_in_grid]],
                      uint thread_id [[thread_index_in_threadgroup]]) {
  threadgroup Matrices m;
  threadgroup uint sizes[64];
  const uint n = uint(prm[0]), p = uint(prm[1]), steps = uint(prm[2]);
  const uint row = thread_id / kSide, column = thread_id % kSide;
  const Opaque opaque = {as_type<float>(0x3f800000u | uint(prm[0] >> 32)), negative_zero(prm[0])};
  const Entry own = {thread_id, row, column, column * kSide + row, n, row < n && column < n, opaque};
  const ulong first = ulong(group) * n * n;
  float left = 0.0f, right = 0.0f;
  if (own.holds) {
    left = A[first + row * n + column];
    right = A[first + column * n + row];
  }
  const uint bits = max(magnitude(as_type<uint>(left)), magnitude(as_type<uint>(right)));
  sizes[thread_id] = is_finite(bits) ? magnitude(as_type<uint>(fma(0.5f, left, 0.5f * right))) : bits;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint largest = 0u;
  for (uint e = 0u; e < kEntries; ++e) {
    largest = max(largest, sizes[e]);
  }
  const bool finite = is_finite(largest);
  // Everything below is done to whatever Y holds: what decides is the same in all threads, and no barrier missed.
  const int exponent = unit_exponent(finite ? as_type<float>(largest) + options[0] : 1.0f);
  const float unit = power_of_two(-exponent);
  const float2 value = exact_sum(0.5f * (unit * left), 0.5f * (unit * right), opaque);
  set_Y(m, value, 1.0f, 0.0f, own);
  float bound = tiny_bound(m.Y, n);
  const float delta = options[0] * unit + options[1] * bound;
  bound += kSafety * delta;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const bool exists = finite && bound > 0.0f;
  const uint instead = finite && bound == 0.0f ? 0u : kQuietNan;
  const float divisor = exists ? 1.0f / bound : 1.0f;
  set_Y(m, value, divisor, delta * divisor, own);
  iterate(m, options + 2, steps, own);
  float2 root = m.Z[thread_id];
  float scale = p == 1u ? divisor : precise::sqrt(divisor);
  if (p == 1u) {
    m.P[thread_id] = product(m.Z, m.Z, own);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    root = next(0.0f, root, 1.0f, m.P[thread_id], m.P[own.mirrored], own);
  }
  if (p == 4u) {
    const float factor = 1.0f / tiny_bound(m.Z, n);
    set_Y(m, root, factor, 0.0f, own);
    iterate(m, options + 2u + 2u * steps, uint(prm[3]), own);
    root = m.Y[thread_id];
    scale = precise::sqrt(scale / factor);
  }
  scale *= power_of_two(-exponent / int(p));
  if (own.holds) {
    store(out, first + row * n + column, exists ? as_type<uint>(scale * root.x) : instead);
  }
  if (thread_id == 0u) {
    store(bounds, ulong(group), finite ? as_type<uint>(bound * power_of_two(exponent)) : kQuietNan);
  }
}
