// Inverse roots of matrices up to order 64, one threadgroup each, by the coupled Newton-Schulz iteration:
//
//   P = Z Y;   Y <- a Y + b Y P;   Z <- a Z + b Z P^T
//
// P is computed in full, of Y and Z the upper triangle and its mirror image: mirroring P too pulls Y and Z apart
// until they diverge. Y and Z lie in threadgroup memory as the upper 8 x 8 blocks, column after column, 9216
// bytes each; P, which would not fit beside them, is made in two halves of 4 block columns, 8192 bytes. The
// matrix is padded with a diagonal of ones.
#include "root_scale.metal"
#include <metal_simdgroup_matrix>

#define UNROLL _Pragma("clang loop unroll(full)")

constant constexpr uint kOrder = 64;
constant constexpr uint kBlock = 64;  // elements
constant constexpr uint kBlocks = 8;  // a side
constant constexpr uint kUpperBlocks = 36;
constant constexpr uint kUpper = 2304;  // elements of them
constant constexpr uint kFirstHalf = 10;  // upper blocks in the first 4 block columns
constant constexpr uint kThreads = 256;
constant constexpr uint kSimdgroups = 8;

// Where a thread is in its group.
struct Thread {
  uint index, lane, simdgroup;
};

// Row and column of upper block q.
static inline uint2 upper_block(uint q) {
  uint column = 0u;
  while (q > column) {
    q -= column + 1u;
    column += 1u;
  }
  return uint2(q, column);
}

static inline uint block_number(uint i, uint j) {
  return j * (j + 1u) / 2u + i;
}

// Where element (r, c) of a symmetric matrix lies.
static inline uint place(uint r, uint c) {
  const uint i = min(r, c), j = max(r, c);
  return block_number(i / 8u, j / 8u) * kBlock + i % 8u * 8u + j % 8u;
}

// Row and column of stored element e.
static inline uint2 element(uint e) {
  const uint2 block = upper_block(e / kBlock);
  return uint2(block.x * 8u + e % kBlock / 8u, block.y * 8u + e % 8u);
}

static inline void load_block(thread simdgroup_float8x8& block, const threadgroup float* X, uint i, uint j) {
  if (i <= j) {
    simdgroup_load(block, X + block_number(i, j) * kBlock, 8);
  } else {
    simdgroup_load(block, X + block_number(j, i) * kBlock, 8, ulong2(0, 0), true);
  }
}

// The largest bits that a thread of the group has. All threads call this; `partial` holds kSimdgroups values.
static inline uint group_max(uint bits, threadgroup uint* partial, Thread own) {
  bits = simd_max(bits);
  if (own.lane == 0u) partial[own.simdgroup] = bits;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = 0u; i < kSimdgroups; ++i) {
    bits = max(bits, partial[i]);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return bits;
}

// The sum over all threads, in one order.
static inline float group_sum(float value, threadgroup uint* partial, Thread own) {
  value = simd_sum(value);
  if (own.lane == 0u) partial[own.simdgroup] = as_type<uint>(value);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  for (uint i = 0u; i < kSimdgroups; ++i) {
    sum += as_type<float>(partial[i]);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return sum;
}

// The smaller of the Wolkowicz-Styan and the Collatz-Wielandt bound, with a margin. The padding must be zero.
static inline float spectrum_bound(const threadgroup float* X, uint n, threadgroup float* sums,
                                   threadgroup uint* partial, Thread own) {
  float sum = 0.0f, square = 0.0f, diagonal = 0.0f;
  if (own.index < n) {
    for (uint c = 0u; c < n; ++c) {
      const float x = X[place(own.index, c)];
      sum += fabs(x);
      square = fma(x, x, square);
    }
    diagonal = X[place(own.index, own.index)];
    sums[own.index] = max(sum, kSmallest);
  }
  const float mean = group_sum(diagonal, partial, own) / float(n);
  const float rms = precise::sqrt(group_sum(square, partial, own) / float(n));
  float ratio = 0.0f;
  if (own.index < n) {
    for (uint c = 0u; c < n; ++c) {
      ratio = fma(sums[c], fabs(X[place(own.index, c)]), ratio);
    }
    ratio = ratio / sums[own.index];
  }
  const float collatz_wielandt = as_type<float>(group_max(as_type<uint>(ratio), partial, own));
  const float variance = max((rms - mean) * (rms + mean), 0.0f);
  const float wolkowicz_styan = mean + precise::sqrt(variance * float(n - 1u));
  return kSafety * min(wolkowicz_styan, collatz_wielandt);
}

// to <- factor X + shift I in the matrix; the padding gets `diagonal`. to may be X.
static inline void scale_and_shift(const threadgroup float* X, threadgroup float* to, uint n, float factor,
                                   float shift, float diagonal, Thread own) {
  for (uint e = own.index; e < kUpper; e += kThreads) {
    const uint2 at = element(e);
    const float added = at.x == at.y ? shift : 0.0f;
    to[e] = max(at.x, at.y) < n ? fma(factor, X[e], added) : (at.x == at.y ? diagonal : 0.0f);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// The lower triangles of the blocks on the diagonal.
static inline void mirror_diagonal(threadgroup float* X, Thread own) {
  for (uint e = own.index; e < kBlocks * kBlock; e += kThreads) {
    const uint d = e / kBlock, r = e % kBlock / 8u, c = e % 8u;
    const uint first = block_number(d, d) * kBlock;
    if (r > c) X[first + r * 8u + c] = X[first + c * 8u + r];
  }
}

// What a simdgroup computes of the next Y (its blocks of both halves) and Z.
struct Next {
  simdgroup_float8x8 Y[6];
  simdgroup_float8x8 Z[5];
};

// P <- b Z Y, the block columns of one half; simdgroup i computes block row i.
template <uint Half>
static inline void multiply_half(const threadgroup float* Y, const threadgroup float* Z, threadgroup float* P,
                                 float b, Thread own) {
  for (uint u = 0u; u < 4u; ++u) {
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint k = 0u; k < kBlocks; ++k) {
      simdgroup_float8x8 left;
      simdgroup_float8x8 right;
      load_block(left, Z, own.simdgroup, k);
      load_block(right, Y, k, 4u * Half + u);
      simdgroup_multiply_accumulate(sum, left, right, sum);
    }
    simdgroup_float8x8 scaled;
    simdgroup_multiply(scaled, sum, simdgroup_float8x8(b));
    simdgroup_store(scaled, P + (own.simdgroup * 4u + u) * kBlock, 8);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// The blocks of a Y + Y P in the block columns of one half, and what the half gives to a Z + Z P^T.
template <uint Half>
static inline void update_half(const threadgroup float* Y, const threadgroup float* Z, const threadgroup float* P,
                               float a, Thread own, thread Next& next) {
  const uint first = Half == 0u ? 0u : kFirstHalf, end = Half == 0u ? kFirstHalf : kUpperBlocks;
  UNROLL for (uint u = 0u; u < (Half == 0u ? 2u : 4u); ++u) {
    const uint q = first + own.simdgroup + kSimdgroups * u;
    if (q < end) {
      const uint2 block = upper_block(q);
      simdgroup_float8x8 left;
      simdgroup_float8x8 right;
      load_block(left, Y, block.x, block.y);
      simdgroup_multiply(next.Y[2u * Half + u], left, simdgroup_float8x8(a));
      for (uint k = 0u; k < kBlocks; ++k) {
        load_block(left, Y, block.x, k);
        simdgroup_load(right, P + (k * 4u + block.y - 4u * Half) * kBlock, 8);
        simdgroup_multiply_accumulate(next.Y[2u * Half + u], left, right, next.Y[2u * Half + u]);
      }
    }
  }
  UNROLL for (uint u = 0u; u < 5u; ++u) {
    const uint q = own.simdgroup + kSimdgroups * u;
    if (q < kUpperBlocks) {
      const uint2 block = upper_block(q);
      simdgroup_float8x8 left;
      simdgroup_float8x8 right;
      if (Half == 0u) {
        load_block(left, Z, block.x, block.y);
        simdgroup_multiply(next.Z[u], left, simdgroup_float8x8(a));
      }
      for (uint k = 0u; k < 4u; ++k) {
        load_block(left, Z, block.x, 4u * Half + k);
        simdgroup_load(right, P + (block.y * 4u + k) * kBlock, 8, ulong2(0, 0), true);
        simdgroup_multiply_accumulate(next.Z[u], left, right, next.Z[u]);
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

static inline void store_next(threadgroup float* Y, threadgroup float* Z, Thread own, thread Next& next) {
  UNROLL for (uint u = 0u; u < 2u; ++u) {
    const uint q = own.simdgroup + kSimdgroups * u;
    if (q < kFirstHalf) simdgroup_store(next.Y[u], Y + q * kBlock, 8);
  }
  UNROLL for (uint u = 0u; u < 4u; ++u) {
    const uint q = kFirstHalf + own.simdgroup + kSimdgroups * u;
    if (q < kUpperBlocks) simdgroup_store(next.Y[2u + u], Y + q * kBlock, 8);
  }
  UNROLL for (uint u = 0u; u < 5u; ++u) {
    const uint q = own.simdgroup + kSimdgroups * u;
    if (q < kUpperBlocks) simdgroup_store(next.Z[u], Z + q * kBlock, 8);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  mirror_diagonal(Y, own);
  mirror_diagonal(Z, own);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Takes Y to Y^(1/2) and Z, whatever it was, to Y^(-1/2).
static inline void iterate(threadgroup float* Y, threadgroup float* Z, threadgroup float* P,
                           constant float* schedule, uint steps, Thread own) {
  scale_and_shift(Z, Z, 0u, 0.0f, 0.0f, 1.0f, own);
  for (uint step = 0u; step < steps; ++step) {
    const float a = schedule[2u * step], b = schedule[2u * step + 1u];
    Next next;
    multiply_half<0u>(Y, Z, P, b, own);
    update_half<0u>(Y, Z, P, a, own, next);
    multiply_half<1u>(Y, Z, P, b, own);
    update_half<1u>(Y, Z, P, a, own, next);
    store_next(Y, Z, own, next);
  }
}

// Y <- Z Z
static inline void square(threadgroup float* Y, const threadgroup float* Z, Thread own) {
  for (uint q = own.simdgroup; q < kUpperBlocks; q += kSimdgroups) {
    const uint2 block = upper_block(q);
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint k = 0u; k < kBlocks; ++k) {
      simdgroup_float8x8 left;
      simdgroup_float8x8 right;
      load_block(left, Z, block.x, k);
      load_block(right, Z, k, block.y);
      simdgroup_multiply_accumulate(sum, left, right, sum);
    }
    simdgroup_store(sum, Y + q * kBlock, 8);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// X <- (A + A^T) / 2, zero in the padding. Returns the bits of its largest magnitude, those of NaN being larger
// than any number's.
static inline uint load_symmetric(device const float* A, uint n, threadgroup float* X, threadgroup uint* partial,
                                  Thread own) {
  uint largest = 0u;
  for (uint e = own.index; e < kUpper; e += kThreads) {
    const uint2 at = element(e);
    float value = 0.0f;
    if (max(at.x, at.y) < n) {
      const float left = A[at.x * n + at.y], right = A[at.y * n + at.x];
      value = fma(0.5f, left, 0.5f * right);
      const uint bits = max(magnitude(as_type<uint>(left)), magnitude(as_type<uint>(right)));
      largest = max(largest, max(magnitude(as_type<uint>(value)), is_finite(bits) ? 0u : bits));
    }
    X[e] = value;
  }
  return group_max(largest, partial, own);
}

// out <- scale X, or zero or NaN where there is no root.
static inline void store_root(const threadgroup float* X, uint n, float scale, uint instead, bool exists,
                              device float* out, Thread own) {
  for (uint e = own.index; e < kUpper; e += kThreads) {
    const uint2 at = element(e);
    if (at.y >= n || at.x > at.y) continue;
    const uint bits = exists ? as_type<uint>(scale * X[e]) : instead;
    store(out, at.x * n + at.y, bits);
    store(out, at.y * n + at.x, bits);
  }
}

// prm: order, p, steps, steps of the second stage. options: damping, relative damping, (a, b) of every step.
[[max_total_threads_per_threadgroup(256)]]
kernel void inverse_root(device const float* A      [[buffer(0)]],
                         device float* out          [[buffer(1)]],
                         device float* bounds       [[buffer(2)]],
                         constant long* prm         [[buffer(3)]],
                         constant float* options    [[buffer(4)]],
                         uint group     [[threadgroup_position_in_grid]],
                         uint thread_id [[thread_index_in_threadgroup]],
                         uint lane      [[thread_index_in_simdgroup]],
                         uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float Y[2304];
  threadgroup float Z[2304];
  threadgroup float P[2048];
  threadgroup float sums[64];
  threadgroup uint partial[8];
  const Thread own = {thread_id, lane, simdgroup};
  const uint n = uint(prm[0]), p = uint(prm[1]), steps = uint(prm[2]);
  const ulong first = ulong(group) * n * n;
  const uint largest = load_symmetric(A + first, n, Y, partial, own);
  const bool finite = is_finite(largest);
  // Everything below is done to whatever Y holds: what decides is the same in all threads, and no barrier missed.
  const int exponent = unit_exponent(finite ? as_type<float>(largest) + options[0] : 1.0f);
  scale_and_shift(Y, Y, n, power_of_two(-exponent), 0.0f, 0.0f, own);
  float bound = spectrum_bound(Y, n, sums, partial, own);
  const float delta = options[0] * power_of_two(-exponent) + options[1] * bound;
  bound += kSafety * delta;
  const bool exists = finite && bound > 0.0f;
  const uint instead = finite && bound == 0.0f ? 0u : kQuietNan;
  const float divisor = exists ? 1.0f / bound : 1.0f;
  scale_and_shift(Y, Y, n, divisor, delta * divisor, 1.0f, own);
  iterate(Y, Z, P, options + 2, steps, own);
  float scale = precise::rsqrt(bound);
  if (p == 1u) {
    square(Y, Z, own);
    scale = divisor;
  }
  if (p == 4u) {
    scale_and_shift(Z, Z, n, 1.0f, 0.0f, 0.0f, own);
    const float root_bound = spectrum_bound(Z, n, sums, partial, own);
    scale_and_shift(Z, Y, n, 1.0f / root_bound, 0.0f, 1.0f, own);
    iterate(Y, Z, P, options + 2u + 2u * steps, uint(prm[3]), own);
    scale = precise::sqrt(root_bound * scale);
  }
  scale *= power_of_two(-exponent / int(p));
  if (p == 2u) {
    store_root(Z, n, scale, instead, exists, out + first, own);
  } else {
    store_root(Y, n, scale, instead, exists, out + first, own);
  }
  if (thread_id == 0u) {
    store(bounds, ulong(group), finite ? as_type<uint>(bound * power_of_two(exponent)) : kQuietNan);
  }
}
