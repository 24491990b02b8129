// The Kronecker factors of KL-Shampoo, each averaging the gradient that the other side's root has whitened. The whitened
// gradient stays in panels between its product, m² n or m n² multiply-adds, and half of the symmetric one.
#include "sandwich.h"
#include "symmetric_update.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

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
  const float alpha = decay.one_minus_beta / static_cast<float>(depth);
  const SymmetricUpdate update{item.S, decay.beta != 0 ? item.S : nullptr, order, alpha, decay.beta, eps};
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
