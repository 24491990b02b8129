// Tiles of products of two matrices of any element types: what kernels with different ends share.
//
// A threadgroup computes a tile of 64 x 64 with four simdgroups of 32 x 32, in fragments of 8 x 8 that stay in
// registers. Both factors are staged in threadgroup memory as float, 16 deep, with rows that lie 20 and 68
// floats apart so that the lanes of a fragment meet different banks: 9472 bytes, which the sums take over. A
// thread keeps 32 sums in fragments, 32 that it has collected from them, and 16 elements of the factors.
//
// Of two factors with r and c lines of depth d a launch moves d (r ceil(c / 64) + c ceil(r / 64)) elements to
// threadgroup memory; groups that run side by side share them in the cache, so that memory is read about once.
#include "exact.metal"
#include <metal_simdgroup_matrix>

#define UNROLL _Pragma("clang loop unroll(full)")

constant constexpr uint kTile = 64;
constant constexpr uint kDepth = 16;
constant constexpr uint kThreads = 128;
constant constexpr uint kLeftStride = 20;
constant constexpr uint kRightStride = 68;
constant constexpr uint kHalf = 32;      // rows of sums that are staged at a time
constant constexpr uint kStaged = 2368;  // floats of threadgroup memory
constant constexpr uint kChunk = 256;    // depth that is summed by itself
constant constexpr uint kOwned = 16;     // sums of 32 rows that a thread has

// Integers of a launch: first tile, rows, columns, depth, strides of batch, row and depth in the left factor,
// of batch, column and depth in the right one, then what a kernel adds.
constant constexpr uint kOwn = 10;

// A tile: its matrix in the batch, and its first row and column.
struct Tile {
  ulong item;
  uint row, col;
};

static inline Tile tile_of_rectangle(constant long* prm, uint group) {
  const uint across = (uint(prm[2]) + kTile - 1u) / kTile, down = (uint(prm[1]) + kTile - 1u) / kTile;
  const ulong index = ulong(prm[0]) + group, in_item = ulong(across) * down;
  Tile tile;
  tile.item = index / in_item;
  const ulong place = index - tile.item * in_item;
  tile.row = uint(place / across) * kTile;
  tile.col = uint(place % across) * kTile;
  return tile;
}

// A factor as lines of `depth` elements: rows of the left one, columns of the right one.
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

static inline void clear(thread Part& part) {
  UNROLL for (uint i = 0u; i < 4u; ++i) {
    UNROLL for (uint j = 0u; j < 4u; ++j) {
      part.at[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }
}

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

// What a thread has of a tile: element e of 32 rows is thread e % 128's, so that neighbouring threads have
// neighbouring columns.
struct Sums {
  float at[2][kOwned];  // upper and lower half of the rows
};

// Adds the parts of all simdgroups to the threads' sums. All threads of the group call this.
static inline void collect(thread const Part& recent, threadgroup float* staged, uint thread_id,
                           uint simdgroup, thread Sums& sums) {
  UNROLL for (uint part = 0u; part < 2u; ++part) {
    if (simdgroup / 2u == part) {
      UNROLL for (uint i = 0u; i < 4u; ++i) {
        UNROLL for (uint j = 0u; j < 4u; ++j) {
          simdgroup_store(recent.at[i][j], staged + 8u * i * kRightStride + simdgroup % 2u * kHalf + 8u * j,
                          kRightStride);
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL for (uint q = 0u; q < kOwned; ++q) {
      const uint e = thread_id + q * kThreads;
      sums.at[part][q] += staged[e / kTile * kRightStride + e % kTile];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// Computes the sums of a tile. All threads of the group call this; `staged` holds kStaged floats.
//
// 256 products are summed apart from those before: in one chain of 4096 the rounding errors of a covariance's
// diagonal grow to 40 units in the last place. Sums meet as floats of a thread, in no product with a matrix of
// ones and zeros, which would spread a NaN.
template <typename L, typename R>
static inline void multiply_tile(device const L* A, device const R* B, constant long* prm, Tile tile,
                                 threadgroup float* staged, uint thread_id, uint simdgroup,
                                 thread Sums& sums) {
  threadgroup float* left = staged;
  threadgroup float* right = staged + kTile * kLeftStride;
  const uint depth = uint(prm[3]);
  const Lines rows = {uint(prm[1]) - tile.row, ulong(prm[5]), ulong(prm[6])};
  const Lines cols = {uint(prm[2]) - tile.col, ulong(prm[8]), ulong(prm[9])};
  device const L* first_row = A + tile.item * ulong(prm[4]) + tile.row * rows.line;
  device const R* first_col = B + tile.item * ulong(prm[7]) + tile.col * cols.line;
  Part recent;
  clear(recent);
  UNROLL for (uint q = 0u; q < kOwned; ++q) {
    sums.at[0][q] = 0.0f;
    sums.at[1][q] = 0.0f;
  }
  for (uint k = 0u; k < depth; k += kDepth) {
    stage(first_row, rows, k, depth, left, kLeftStride, 1u, thread_id);
    stage(first_col, cols, k, depth, right, 1u, kRightStride, thread_id);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_staged(left, right, simdgroup / 2u * kHalf, simdgroup % 2u * kHalf, recent);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if ((k + kDepth) % kChunk == 0u || k + kDepth >= depth) {
      collect(recent, staged, thread_id, simdgroup, sums);
      clear(recent);
    }
  }
}

// An element of a row-major result, and where it lies in the batch.
struct Element {
  bool exists;
  ulong at;
};

// The element whose sum a thread has at [part][q].
static inline Element element_of(constant long* prm, Tile tile, uint part, uint q, uint thread_id) {
  const uint rows = uint(prm[1]), cols = uint(prm[2]), e = thread_id + q * kThreads;
  const uint i = tile.row + part * kHalf + e / kTile, j = tile.col + e % kTile;
  Element element;
  element.exists = i < rows && j < cols;
  element.at = (tile.item * rows + i) * cols + j;
  return element;
}
