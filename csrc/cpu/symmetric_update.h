// What ends a product that is known to be symmetric: S <- alpha P + beta C + eps I.
#pragma once
#include "vectors.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// Takes a tile (i, j), i >= j, of the product P and writes it and its mirror image; of C nothing else is read.
struct SymmetricUpdate {
  float* S;
  const float* C;  // null where beta is zero: what it holds must not count
  int64_t n;
  float alpha, beta, eps;

  // Not inlined: a product calls it for tiles on the diagonal and below.
  __attribute__((noinline)) void operator()(int64_t i, int64_t j, Tile tile) const {
    const int64_t row = i * TILE, col = j * TILE;
#pragma GCC unroll 16
    for (int r = 0; r < TILE; ++r) tile.row[r] *= alpha;
    if (C) {
      const Tile addend = load_part(C + row * n + col, n, n - row, n - col);
#pragma GCC unroll 16
      for (int r = 0; r < TILE; ++r) tile.row[r] += beta * addend.row[r];
    }
    if (i == j) {
      tile = mirrored(tile);
      const RowMask lane = lane_numbers(AllLanes());
      if (eps != 0)
        for (int r = 0; r < TILE; ++r) tile.row[r] = lane == r ? tile.row[r] + eps : tile.row[r];
    }
    store_part(S + row * n + col, n, n - row, n - col, tile);
    if (i != j) store_part(S + col * n + row, n, n - col, n - row, transposed(tile));
  }
};

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
