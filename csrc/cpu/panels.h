// Products of matrices in panels, on tiles that stay in registers.
//
// A matrix with `depth` rows is cut into panels of TILE columns, each stored row after row: element (k, TILE p + j) of
// the matrix is at panels[(p depth + k) TILE + j]. A product AᵀB reads a panel of A and one of B from one end to the
// other: TILE broadcasts, one load and TILE multiply-adds a row. Panels are padded with zeros to whole tiles.
#pragma once
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "parallel.h"
#include "vectors.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

KPOP_INLINE int64_t tiles(int64_t n) { return (n + TILE - 1) / TILE; }

// The tile AᵀB of two panels.
KPOP_INLINE Tile multiply(const float* __restrict a, const float* __restrict b, int64_t depth) {
  Tile t;
#pragma GCC unroll 16
  for (int i = 0; i < TILE; ++i) t.row[i] = Row{};
  for (int64_t k = 0; k < depth; ++k) {
    const Row row = load(b + TILE * k);
#pragma GCC unroll 16
    for (int i = 0; i < TILE; ++i) t.row[i] += a[TILE * k + i] * row;
  }
  return t;
}

// The same with its lower triangle right and no promise above it. The upper half of the rows takes half vectors,
// which cost half where a processor runs 512-bit operations in two passes.
KPOP_INLINE Tile multiply_lower(const float* __restrict a, const float* __restrict b, int64_t depth) {
#if defined(__AVX512F__)
  constexpr int HALF = TILE / 2;
  typedef float HalfRow __attribute__((vector_size(HALF * sizeof(float))));
  HalfRow upper[HALF];
  Row lower[HALF];
#pragma GCC unroll 16
  for (int i = 0; i < HALF; ++i) {
    upper[i] = HalfRow{};
    lower[i] = Row{};
  }
  for (int64_t k = 0; k < depth; ++k) {
    const Row row = load(b + TILE * k);
    HalfRow half;
    __builtin_memcpy(&half, b + TILE * k, sizeof half);
#pragma GCC unroll 16
    for (int i = 0; i < HALF; ++i) {
      upper[i] += a[TILE * k + i] * half;
      lower[i] += a[TILE * k + HALF + i] * row;
    }
  }
  Tile t;
#pragma GCC unroll 16
  for (int i = 0; i < HALF; ++i) {
    t.row[i] = reinterpret_cast<Row>(_mm512_castps256_ps512(reinterpret_cast<__m256>(upper[i])));
    t.row[HALF + i] = lower[i];
  }
  return t;
#else
  return multiply(a, b, depth);
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

// Calls store(i, j, tile) for the tiles i >= j of a product AᵀB known to be symmetric. Diagonal tiles hold
// their lower triangle only.
template <class Store>
KPOP_INLINE void symmetric_product(const float* A, const float* B, int64_t count, int64_t depth, Team team,
                                   const Store& store) {
  Turns turns(team);
  for (int64_t j = 0; j < count; ++j) {
    const float* b = B + j * TILE * depth;
    if (turns.mine()) store(j, j, multiply_lower(A + j * TILE * depth, b, depth));
    for (int64_t i = j + 1; i < count; ++i)
      if (turns.mine()) store(i, j, multiply(A + i * TILE * depth, b, depth));
  }
}

// Calls store(i, j, tile) for all tiles of AᵀB.
template <class Store>
KPOP_INLINE void full_product(const float* A, const float* B, int64_t count, int64_t depth, Team team,
                              const Store& store) {
  Turns turns(team);
  for (int64_t j = 0; j < count; ++j)
    for (int64_t i = 0; i < count; ++i)
      if (turns.mine())
        store(i, j, multiply(A + i * TILE * depth, B + j * TILE * depth, depth));
}

// Square matrices of n = count TILE rows in panels: where tile (i, j) lies.
KPOP_INLINE int64_t tile_offset(int64_t i, int64_t j, int64_t n) { return (j * n + i * TILE) * TILE; }

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
