// Is a symmetric matrix positive definite? A Cholesky factorization that goes through is the proof, for a twentieth of
// the operations of an inverse root. Tile by tile, UᵀU = A: the factor lies in panels like every other matrix, so
// that what the rows above contribute to a tile is a product of two panels.
#pragma once
#include <math.h>

#include "panels.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// Factorizes one tile to UᵀU, of which the upper triangle is stored, and the inverses of its diagonal. The pivots are
// scaled at the end: a square root a row in the chain from pivot to pivot would take longer than all the rest.
KPOP_INLINE bool factorize(Tile t, float* U, float* inverses) {
  float pivots[TILE], multiples[TILE];
#pragma GCC unroll 16
  for (int k = 0; k < TILE; ++k) {
    store(U + k * TILE, t.row[k]);
    pivots[k] = U[k * TILE + k];
    if (!(pivots[k] > 0)) return false;
    store(multiples, t.row[k] * (1 / pivots[k]));
#pragma GCC unroll 16
    for (int i = k + 1; i < TILE; ++i) t.row[i] -= multiples[i] * t.row[k];
  }
  for (int k = 0; k < TILE; ++k) inverses[k] = 1 / sqrtf(pivots[k]);
  for (int k = 0; k < TILE; ++k) store(U + k * TILE, inverses[k] * load(U + k * TILE));
  return true;
}

// The tile X with UᵀX = t, for the upper triangle U of a tile.
KPOP_INLINE Tile solve(const float* U, const float* inverses, Tile t) {
#pragma GCC unroll 16
  for (int k = 0; k < TILE; ++k) {
    t.row[k] *= inverses[k];
#pragma GCC unroll 16
    for (int i = k + 1; i < TILE; ++i) t.row[i] -= U[k * TILE + i] * t.row[k];
  }
  return t;
}

// Whether A - shift I is positive definite, up to the rounding of the factorization. A has `count` tiles a side; the
// factor is left in `U`, of the size of A.
inline bool is_definite(const float* A, int64_t count, float shift, float* U) {
  const int64_t n = count * TILE;
  float inverses[TILE] = {};
  bool definite = true;
  for (int64_t i = 0; i < count && definite; ++i)
    for (int64_t j = i; j < count && definite; j += BESIDE)
      multiply_each(Columns{U + i * TILE * n}, U + j * TILE * n, TILE * n, i * TILE, beside(j, count),
                    [&](int64_t c, const Tile& above) {
                      Tile tile = load_tile(A + tile_offset(i, j + c, n), TILE);
#pragma GCC unroll 16
                      for (int r = 0; r < TILE; ++r) tile.row[r] -= above.row[r];
                      float* const target = U + tile_offset(i, j + c, n);
                      if (i < j + c) {
                        store_tile(target, TILE, solve(U + tile_offset(i, i, n), inverses, tile));
                        return;
                      }
                      store_tile(target, TILE, tile);
                      for (int r = 0; r < TILE; ++r) target[r * TILE + r] -= shift;
                      definite = factorize(load_tile(target, TILE), target, inverses);
                    });
  return definite;
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
