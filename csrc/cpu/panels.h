// Products of matrices in panels, on tiles that stay in registers.
//
// A matrix with `depth` rows is cut into panels of TILE columns, each stored row after row: element (k, TILE p + j) of
// the matrix is at panels[(p depth + k) TILE + j]. A product AᵀB reads a panel of A and one of B from one end to the
// other: TILE broadcasts, one load and TILE multiply-adds a row. Panels are padded with zeros to whole tiles.
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

// Which tiles a member of a team takes: every size-th one.
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
  for (int64_t j = 0; j < count; ++j) {
    const float* b = B + j * TILE * depth;
    if (turns.mine()) store(j, j, multiply_lower(A.tile(j), b, depth));
    for (int64_t i = j + 1; i < count; ++i)
      if (turns.mine()) store(i, j, multiply(A.tile(i), b, depth));
  }
}

// Calls store(i, j, tile) for all tiles of a product.
template <class Factor, class Store>
KPOP_INLINE void full_product(Factor A, const float* B, int64_t count, int64_t depth, Team team,
                              const Store& store) {
  Turns turns(team);
  for (int64_t j = 0; j < count; ++j)
    for (int64_t i = 0; i < count; ++i)
      if (turns.mine()) store(i, j, multiply(A.tile(i), B + j * TILE * depth, depth));
}

// Square matrices of n = count TILE rows in panels: where tile (i, j) lies.
KPOP_INLINE int64_t tile_offset(int64_t i, int64_t j, int64_t n) { return (j * n + i * TILE) * TILE; }

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
