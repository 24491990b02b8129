// Products of matrices in panels, on tiles that stay in registers.
//
// A matrix with `depth` rows is cut into panels of TILE columns, each stored row after row: element (k, TILE p + j) of
// the matrix is at panels[(p depth + k) TILE + j]. A product AᵀB reads a panel of A and one of B from one end to the
// other: TILE broadcasts, one load and TILE multiply-adds a row. Panels are padded with zeros to whole tiles.
#pragma once
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

// Calls store(i, j, tile) for the tiles i >= j of a product AᵀB known to be symmetric.
template <class Store>
KPOP_INLINE void symmetric_product(const float* A, const float* B, int64_t count, int64_t depth, Team team,
                                   const Store& store) {
  int64_t turn = 0;
  for (int64_t j = 0; j < count; ++j)
    for (int64_t i = j; i < count; ++i)
      if (turn++ % team.size == team.rank)
        store(i, j, multiply(A + i * TILE * depth, B + j * TILE * depth, depth));
}

// Calls store(i, j, tile) for all tiles of AᵀB.
template <class Store>
KPOP_INLINE void full_product(const float* A, const float* B, int64_t count, int64_t depth, Team team,
                              const Store& store) {
  for (int64_t j = 0; j < count; ++j)
    for (int64_t i = 0; i < count; ++i)
      if ((j * count + i) % team.size == team.rank)
        store(i, j, multiply(A + i * TILE * depth, B + j * TILE * depth, depth));
}

// Square matrices of n = count TILE rows in panels: where tile (i, j) lies.
KPOP_INLINE int64_t tile_offset(int64_t i, int64_t j, int64_t n) { return (j * n + i * TILE) * TILE; }

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
