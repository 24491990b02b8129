// Products of matrices in panels, on tiles that stay in registers.
//
// A matrix with `depth` rows is cut into panels of TILE columns, each stored row after row: element (k, TILE p + j) of
// the matrix is at panels[(p depth + k) TILE + j]. A product AᵀB reads a panel of A and one of B from one end to the
// other: TILE broadcasts, one load and TILE multiply-adds a row. Where registers are few and short, three panels of B
// share the broadcasts. Panels are padded with zeros to whole tiles.
#pragma once
#include "intrinsics.h"
#include "parallel.h"
#include "vectors.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// a b + c, rounded once where the processor can: half the instructions where multiplications and additions share ports.
KPOP_INLINE Row multiply_add(float a, Row b, Row c) {
#if defined(__AVX512F__)
  return reinterpret_cast<Row>(
      _mm512_fmadd_ps(_mm512_set1_ps(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif defined(__FMA__)
  return reinterpret_cast<Row>(
      _mm256_fmadd_ps(_mm256_set1_ps(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#elif defined(__aarch64__)
  for (int lane = 0; lane < TILE; ++lane) c[lane] = __builtin_fmaf(a, b[lane], c[lane]);
  return c;
#else
  return a * b + c;
#endif
}

#if defined(__AVX512F__)
KPOP_INLINE __m256 multiply_add(float a, __m256 b, __m256 c) { return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c); }
#endif

KPOP_INLINE int64_t tiles(int64_t n) { return (n + TILE - 1) / TILE; }

// Where a product finds the elements of its left factor. Element k of row i of a tile is at
// from(k0)[DEPTH (k - k0) + ROW i] for the run(depth) elements from k0 on.

// TILE columns of A in AᵀB: one panel.
struct Columns {
  static constexpr int DEPTH = TILE, ROW = 1;
  const float* panel;
  const float* from(int64_t k) const { return panel + TILE * k; }
  int64_t run(int64_t depth) const { return depth; }
};

// TILE rows of A in AB: a block of each panel.
struct Rows {
  static constexpr int DEPTH = 1, ROW = TILE;
  const float* block;
  int64_t panel_rows;
  const float* from(int64_t k) const { return block + panel_rows * k; }
  int64_t run(int64_t) const { return TILE; }
};

// The left factor of AᵀB and of AB.
struct Transposed {
  const float* panels;
  int64_t depth;
  Columns tile(int64_t i) const { return {panels + i * TILE * depth}; }
};
struct Untransposed {
  const float* panels;
  int64_t rows;
  Rows tile(int64_t i) const { return {panels + i * TILE * TILE, rows}; }
};

// With 16 registers GCC leaves a row of sums in memory, and waits for it in every step, where other code surrounds the
// loop; in a function of its own it does not.
#if defined(__AVX512F__)
#define KPOP_PRODUCT KPOP_INLINE
#else
#define KPOP_PRODUCT __attribute__((noinline))
#endif

// One tile of a product: TILE rows of the left factor times the panel b.
template <class Factor>
KPOP_PRODUCT Tile multiply(Factor factor, const float* __restrict b, int64_t depth) {
  Tile t;
#pragma GCC unroll 16
  for (int i = 0; i < TILE; ++i) t.row[i] = Row{};
  for (int64_t k0 = 0; k0 < depth; k0 += factor.run(depth)) {
    const float* __restrict a = factor.from(k0);
    for (int64_t k = 0; k < factor.run(depth); ++k) {
      const Row row = load(b + TILE * (k0 + k));
#pragma GCC unroll 16
      for (int i = 0; i < TILE; ++i) t.row[i] = multiply_add(a[Factor::DEPTH * k + Factor::ROW * i], row, t.row[i]);
    }
  }
  return t;
}

// The same with its lower triangle right and no promise above it. The upper half of the rows takes half vectors,
// which cost half where a processor runs 512-bit operations in two passes.
template <class Factor>
KPOP_INLINE Tile multiply_lower(Factor factor, const float* __restrict b, int64_t depth) {
#if defined(__AVX512F__)
  constexpr int HALF = TILE / 2;
  __m256 upper[HALF];
  Row lower[HALF];
#pragma GCC unroll 16
  for (int i = 0; i < HALF; ++i) {
    upper[i] = _mm256_setzero_ps();
    lower[i] = Row{};
  }
  for (int64_t k0 = 0; k0 < depth; k0 += factor.run(depth)) {
    const float* __restrict a = factor.from(k0);
    for (int64_t k = 0; k < factor.run(depth); ++k) {
      const Row row = load(b + TILE * (k0 + k));
      const __m256 half = _mm256_loadu_ps(b + TILE * (k0 + k));
#pragma GCC unroll 16
      for (int i = 0; i < HALF; ++i) {
        upper[i] = multiply_add(a[Factor::DEPTH * k + Factor::ROW * i], half, upper[i]);
        lower[i] = multiply_add(a[Factor::DEPTH * k + Factor::ROW * (HALF + i)], row, lower[i]);
      }
    }
  }
  Tile t;
#pragma GCC unroll 16
  for (int i = 0; i < HALF; ++i) {
    t.row[i] = reinterpret_cast<Row>(_mm512_castps256_ps512(upper[i]));
    t.row[HALF + i] = lower[i];
  }
  return t;
#else
  return multiply(factor, b, depth);
#endif
}

// How many tiles side by side are computed together. With 32 registers one tile keeps the multiply-adds busy; with 16,
// one would wait for its broadcasts, and four rows of three tiles do not: 12 sums, a row of each panel, a broadcast.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int BESIDE = 1;
#else
constexpr int BESIDE = 3;
#endif

// COUNT tiles side by side: TILE rows of the left factor times as many panels, `stride` floats apart. Each sum is added
// up in the order of `multiply`.
template <int COUNT, class Factor>
__attribute__((noinline)) void multiply_beside(Factor factor, const float* __restrict b, int64_t stride, int64_t depth,
                                               Tile* __restrict tiles) {
  constexpr int ROWS = 4;
  for (int first = 0; first < TILE; first += ROWS) {
    Row sums[ROWS][COUNT];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 16
      for (int c = 0; c < COUNT; ++c) sums[i][c] = Row{};
    for (int64_t k0 = 0; k0 < depth; k0 += factor.run(depth)) {
      const float* __restrict a = factor.from(k0) + Factor::ROW * first;
      for (int64_t k = 0; k < factor.run(depth); ++k) {
        Row row[COUNT];
#pragma GCC unroll 16
        for (int c = 0; c < COUNT; ++c) row[c] = load(b + stride * c + TILE * (k0 + k));
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i) {
          const float element = a[Factor::DEPTH * k + Factor::ROW * i];
#pragma GCC unroll 16
          for (int c = 0; c < COUNT; ++c) sums[i][c] = multiply_add(element, row[c], sums[i][c]);
        }
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 16
      for (int c = 0; c < COUNT; ++c) tiles[c].row[first + i] = sums[i][c];
  }
}

// Calls store(c, tile) for the `count` tiles, BESIDE at most, of TILE rows of the left factor times as many panels.
template <class Factor, class Store>
KPOP_INLINE void multiply_each(Factor factor, const float* b, int64_t stride, int64_t depth, int64_t count,
                               const Store& store) {
  if constexpr (BESIDE == 1) {
    store(0, multiply(factor, b, depth));
  } else {
    Tile tiles[BESIDE];
    if (count == 3)
      multiply_beside<3>(factor, b, stride, depth, tiles);
    else if (count == 2)
      multiply_beside<2>(factor, b, stride, depth, tiles);
    else
      tiles[0] = multiply(factor, b, depth);
    for (int64_t c = 0; c < count; ++c) store(c, tiles[c]);
  }
}

// The number of tiles from j on that are computed together.
KPOP_INLINE int64_t beside(int64_t j, int64_t end) { return end - j < BESIDE ? end - j : BESIDE; }

// Calls visit(p, k) for the rows from k on of panel p, tile by tile, of all panels that a member of a team packs: those
// that share a cache line of the matrix go together, so that it is read once.
template <class Visit>
KPOP_INLINE void each_packed(int64_t panels, int64_t depth, Team team, const Visit& visit) {
  constexpr int64_t SHARING = TILE < 16 ? 16 / TILE : 1;
  for (int64_t from = SHARING * team.rank; from < panels; from += SHARING * team.size)
    for (int64_t k = 0; k < depth; k += TILE)
      for (int64_t p = from; p < from + SHARING && p < panels; ++p) visit(p, k);
}

// Which groups of tiles a member of a team takes: every size-th one.
struct Turns {
  int size, left;
  explicit Turns(Team team) : size(team.size), left(team.rank) {}
  bool mine() {
    if (left--) return false;
    left = size - 1;
    return true;
  }
};

// Calls store(i, j, tile) for the tiles i >= j of a product known to be symmetric, of a left factor and the panels B.
// Diagonal tiles hold their lower triangle only.
template <class Factor, class Store>
KPOP_INLINE void symmetric_product(Factor A, const float* B, int64_t count, int64_t depth, Team team,
                                   const Store& store) {
  Turns turns(team);
  const int64_t stride = TILE * depth;
  for (int64_t j = 0; j < count; j += BESIDE)
    for (int64_t i = j; i < count; ++i) {
      if (!turns.mine()) continue;
      const float* b = B + j * stride;
      if (i == j)
        store(j, j, multiply_lower(A.tile(j), b, depth));
      else
        multiply_each(A.tile(i), b, stride, depth, beside(j, i + 1),
                      [&](int64_t c, const Tile& tile) { store(i, j + c, tile); });
    }
}

// Calls store(i, j, tile) for all rows x cols tiles of a product of a left factor and panels that are `stride` apart.
template <class Factor, class Store>
KPOP_INLINE void full_product(Factor A, int64_t rows, const float* B, int64_t stride, int64_t cols, int64_t depth,
                              Team team, const Store& store) {
  Turns turns(team);
  for (int64_t j = 0; j < cols; j += BESIDE)
    for (int64_t i = 0; i < rows; ++i)
      if (turns.mine())
        multiply_each(A.tile(i), B + j * stride, stride, depth, beside(j, cols),
                      [&](int64_t c, const Tile& tile) { store(i, j + c, tile); });
}

// The same of square matrices of `count` tiles a side.
template <class Factor, class Store>
KPOP_INLINE void full_product(Factor A, const float* B, int64_t count, int64_t depth, Team team, const Store& store) {
  full_product(A, count, B, TILE * depth, count, depth, team, store);
}

// Square matrices of n = count TILE rows in panels: where tile (i, j) lies.
KPOP_INLINE int64_t tile_offset(int64_t i, int64_t j, int64_t n) { return (j * n + i * TILE) * TILE; }

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
