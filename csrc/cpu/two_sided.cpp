// One matrix between two factors. Bound by multiply-adds: 2 m n (m + n) for two factors.
#include "sandwich.h"

namespace kpop::cpu::KPOP_ISA {

void multiply_panels(const TwoSidedItem& item, bool left_transposed, bool right_transposed, Buffers use, Team team) {
  const int64_t m = item.rows, n = item.cols;
  float* out = item.out;
  const float keep = item.keep, weight = item.weight;
  sandwich({item.left, left_transposed}, {item.right, right_transposed}, m, n, use, team,
           [=](int64_t i, int64_t j, Tile tile) {
             float* target = out + i * TILE * n + j * TILE;
             const int64_t rows = m - i * TILE, cols = n - j * TILE;
#pragma GCC unroll 16
             for (int r = 0; r < TILE; ++r) tile.row[r] *= weight;
             if (keep != 0) {
               const Tile old = load_part(target, n, rows, cols);
#pragma GCC unroll 16
               for (int r = 0; r < TILE; ++r) tile.row[r] = keep * old.row[r] + tile.row[r];
             }
             store_part(target, n, rows, cols, tile);
           });
}

void multiply_both_sides(const TwoSidedItem& item, bool left_transposed, bool right_transposed, float* memory,
                         Team team) {
  const Buffers use = buffers(memory, item.rows, item.cols);
  pack(item.G, item.rows, item.cols, !item.left, use.matrix, team);
  multiply_panels(item, left_transposed, right_transposed, use, team);
}

void two_sided(const TwoSidedItem* items, int64_t count, bool left_transposed, bool right_transposed, int threads) {
  for_each_item(count, most_floats(items, count), threads, [=](int64_t i, float* memory, Team team) {
    multiply_both_sides(items[i], left_transposed, right_transposed, memory, team);
  });
}

}  // namespace kpop::cpu::KPOP_ISA
