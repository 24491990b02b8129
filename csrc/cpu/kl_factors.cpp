// The Kronecker factors of KL-Shampoo, each averaging the gradient that the other side's root has whitened. The whitened
// gradient stays in panels between its product, m² n or m n² multiply-adds, and half of the symmetric one.
#include "sandwich.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// S <- beta S + alpha YYᵀ + eps I on one tile of YYᵀ and its mirror image.
struct FactorUpdate {
  float* S;
  int64_t n;
  float beta, alpha, eps;

  __attribute__((noinline)) void operator()(int64_t i, int64_t j, Tile tile) const {
    const int64_t row = i * TILE, col = j * TILE;
    float* target = S + row * n + col;
#pragma GCC unroll 16
    for (int r = 0; r < TILE; ++r) tile.row[r] *= alpha;
    if (beta != 0) {
      const Tile old = load_part(target, n, n - row, n - col);
#pragma GCC unroll 16
      for (int r = 0; r < TILE; ++r) tile.row[r] += beta * old.row[r];
    }
    if (i == j) {
      tile = mirrored(tile);
      const RowMask lane = lane_numbers(AllLanes());
      for (int r = 0; r < TILE; ++r) tile.row[r] = lane == r ? tile.row[r] + eps : tile.row[r];
    }
    store_part(target, n, n - row, n - col, tile);
    if (i != j) store_part(S + col * n + row, n, n - col, n - row, transposed(tile));
  }
};

void update_factor(const KlFactorItem& item, Decay decay, float eps, float* memory, Team team) {
  const int64_t order = item.of_columns ? item.cols : item.rows, depth = item.of_columns ? item.rows : item.cols;
  const Buffers use = buffers(memory, item.rows, item.cols);
  pack(item.G, item.rows, item.cols, !item.of_columns, use.matrix, team);
  const float* Y = use.matrix;
  if (item.P) {
    float* whitened = use.between;
    pack(item.P, depth, depth, item.of_columns, use.factor, team);
    team.wait();
    product(use.factor, depth, use.matrix, order, padded(depth), team, [=](int64_t i, int64_t j, const Tile& tile) {
      store_tile(place(whitened, i, j, depth), TILE, tile);
    });
    Y = whitened;
  }
  team.wait();
  const FactorUpdate update{item.S, order, decay.beta, decay.one_minus_beta / static_cast<float>(depth), eps};
  symmetric_product(Transposed{Y, padded(depth)}, Y, tiles(order), padded(depth), team, update);
}

}  // namespace

void kl_factors(const KlFactorItem* items, int64_t count, Decay decay, float eps, int threads) {
  int64_t floats = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t own = buffer_floats(items[i].rows, items[i].cols);
    floats = own > floats ? own : floats;
  }
  for_each_item(count, floats, threads, [=](int64_t i, float* memory, Team team) {
    update_factor(items[i], decay, eps, memory, team);
  });
}

}  // namespace kpop::cpu::KPOP_ISA
