// out = alpha A B + beta C for products known to be symmetric: tiles of the upper triangle, each stored twice.
//
// A threadgroup computes a tile of 64 x 64 with four simdgroups of 32 x 32, in fragments of 8 x 8 that stay in
// registers. Both factors are staged in threadgroup memory as float, 16 deep, with rows that lie 20 and 68
// floats apart so that the lanes of a fragment meet different banks: 9472 bytes.
#include "exact.metal"
#include <metal_simdgroup_matrix>

#define UNROLL _Pragma("clang loop unroll(full)")

constant constexpr uint kTile = 64;
constant constexpr uint kDepth = 16;
constant constexpr uint kThreads = 128;
constant constexpr uint kLeftStride = 20;
constant constexpr uint kRightStride = 68;
constant constexpr uint kHalf = 32;  // rows of the result that are staged at a time

struct Tile {
  ulong item;
  uint row, col;
};

// Tile `index` of a batch, of `tiles` a side. The upper triangle is folded to a rectangle: what lies left of the
// diagonal comes from the other end.
static inline Tile tile_of(ulong index, uint tiles) {
  const ulong in_item = ulong(tiles) * (tiles + 1u) / 2u;
  Tile tile;
  tile.item = index / in_item;
  const uint odd = tiles & 1u, width = tiles + 1u - odd;
  const uint place = uint(index - tile.item * in_item);
  const uint y = place / width, x = place - y * width;
  const bool folded = x + odd <= y;
  tile.row = folded ? tiles - 1u + odd - y : y;
  tile.col = folded ? tiles - 1u - x : x - (1u - odd);
  return tile;
}

// A factor as lines of `depth` elements: rows of A, columns of B.
struct Lines {
  uint count;  // that exist from the first line of the tile on
  ulong line, depth;  // strides
};

// Stages 64 lines from depth `from` on; what does not exist is zero.
template <typename T>
static inline void stage(device const T* source, Lines lines, uint from, uint depth, threadgroup float* to,
                         uint line_stride, uint depth_stride, uint thread_id) {
  for (uint e = thread_id; e < kTile * kDepth; e += kThreads) {
    // Neighbouring threads read neighbouring elements.
    const uint line = lines.depth == 1ul ? e / kDepth : e % kTile;
    const uint k = lines.depth == 1ul ? e % kDepth : e / kTile;
    float value = 0.0f;
    if (line < lines.count && from + k < depth) {
      value = as_type<float>(float_bits(source[line * lines.line + (from + k) * lines.depth]));
    }
    to[line * line_stride + k * depth_stride] = value;
  }
}

// 4 x 4 fragments: the part of a simdgroup.
struct Part {
  simdgroup_float8x8 at[4][4];
};

static inline void multiply_staged(const threadgroup float* left, const threadgroup float* right, uint row,
                                   uint col, thread Part& sums) {
  UNROLL for (uint k = 0u; k < kDepth; k += 8u) {
    simdgroup_float8x8 a[4];
    simdgroup_float8x8 b[4];
    UNROLL for (uint i = 0u; i < 4u; ++i) {
      simdgroup_load(a[i], left + (row + 8u * i) * kLeftStride + k, kLeftStride);
      simdgroup_load(b[i], right + k * kRightStride + col + 8u * i, kRightStride);
    }
    UNROLL for (uint i = 0u; i < 4u; ++i) {
      UNROLL for (uint j = 0u; j < 4u; ++j) {
        simdgroup_multiply_accumulate(sums.at[i][j], a[i], b[j], sums.at[i][j]);
      }
    }
  }
}

// Where the result goes: element (0, 0) of the staged rows is (row, col) of an n x n matrix.
struct Place {
  uint row, col, n;
};

// Turns staged sums into results, in place and in the upper triangle of `out`.
template <typename T>
static inline void finish(threadgroup float* staged, device const float* C, device T* out, Place place,
                          float alpha, float beta, uint thread_id) {
  for (uint e = thread_id; e < kHalf * kTile; e += kThreads) {
    const uint r = e / kTile, c = e % kTile, i = place.row + r, j = place.col + c;
    if (j >= place.n || i > j) continue;
    const ulong at = ulong(i) * place.n + j;
    float value = alpha * staged[r * kRightStride + c];
    if (beta != 0.0f) value = fma(beta, C[at], value);
    staged[r * kRightStride + c] = value;
    store(out, at, float_bits(value));
  }
}

// Stores the staged results once more, mirrored: neighbouring threads take neighbouring rows.
template <typename T>
static inline void mirror(const threadgroup float* staged, device T* out, Place place, uint thread_id) {
  for (uint e = thread_id; e < kHalf * kTile; e += kThreads) {
    const uint r = e % kHalf, c = e / kHalf, i = place.row + r, j = place.col + c;
    if (j >= place.n || i >= j) continue;
    store(out, ulong(j) * place.n + i, float_bits(staged[r * kRightStride + c]));
  }
}

// prm: first tile of this launch, n, k, strides of A's rows and depth, of B's columns and depth.
// weights: alpha, beta.
template <typename T>
[[max_total_threads_per_threadgroup(128)]]
kernel void symmetric_product(device const T* A         [[buffer(0)]],
                              device const T* B         [[buffer(1)]],
                              device const float* C     [[buffer(2)]],
                              device T* out             [[buffer(3)]],
                              constant long* prm        [[buffer(4)]],
                              constant float* weights   [[buffer(5)]],
                              uint group     [[threadgroup_position_in_grid]],
                              uint thread_id [[thread_index_in_threadgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float shared[2368];
  threadgroup float* left = shared;
  threadgroup float* right = shared + kTile * kLeftStride;
  const uint n = uint(prm[1]), depth = uint(prm[2]);
  const Tile tile = tile_of(ulong(prm[0]) + group, (n + kTile - 1u) / kTile);
  const uint row = tile.row * kTile, col = tile.col * kTile;
  const Lines rows = {n - row, ulong(prm[3]), ulong(prm[4])};
  const Lines cols = {n - col, ulong(prm[5]), ulong(prm[6])};
  const ulong first = tile.item * n * depth;
  const uint own_row = simdgroup / 2u * kHalf, own_col = simdgroup % 2u * kHalf;
  Part sums;
  UNROLL for (uint i = 0u; i < 4u; ++i) {
    UNROLL for (uint j = 0u; j < 4u; ++j) {
      sums.at[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }
  for (uint k = 0u; k < depth; k += kDepth) {
    stage(A + first + row * rows.line, rows, k, depth, left, kLeftStride, 1u, thread_id);
    stage(B + first + col * cols.line, cols, k, depth, right, 1u, kRightStride, thread_id);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_staged(left, right, own_row, own_col, sums);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  device T* result = out + tile.item * n * n;
  device const float* addend = weights[1] != 0.0f ? C + tile.item * n * n : C;
  for (uint half_row = 0u; half_row < kTile; half_row += kHalf) {
    if (own_row == half_row) {
      UNROLL for (uint i = 0u; i < 4u; ++i) {
        UNROLL for (uint j = 0u; j < 4u; ++j) {
          simdgroup_store(sums.at[i][j], shared + 8u * i * kRightStride + own_col + 8u * j, kRightStride);
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const Place place = {row + half_row, col, n};
    finish(shared, addend, result, place, weights[0], weights[1], thread_id);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    mirror(shared, result, place, thread_id);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

template [[host_name("symmetric_product_float32")]] [[kernel]]
decltype(symmetric_product<float>) symmetric_product<float>;
template [[host_name("symmetric_product_float16")]] [[kernel]]
decltype(symmetric_product<half>) symmetric_product<half>;
template [[host_name("symmetric_product_bfloat16")]] [[kernel]]
decltype(symmetric_product<bfloat>) symmetric_product<bfloat>;
