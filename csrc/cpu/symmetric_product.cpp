// out = alpha A B + beta C for products known to be symmetric: tiles of the lower triangle, each stored twice.
// Bound by multiply-adds: n² k of them for each matrix.
#include "kernels.h"
#include "panels.h"
#include "symmetric_update.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// Depth of the panels of one pass; longer sums are added up in `out`.
constexpr int64_t MAX_DEPTH = 1024;

struct Shape {
  int64_t n, depth;
};

// Packs rows [from, from + depth) of an operand, of which the matrix has `total`, into panels.
void pack(const Operand& operand, Shape shape, int64_t from, int64_t total, float* panels, Team team) {
  each_packed(tiles(shape.n), shape.depth, team, [=](int64_t p, int64_t k) {
    const int64_t rows = shape.depth - k, cols = shape.n - p * TILE;
    const Tile tile = operand.depth_major
                          ? load_part(operand.data + (from + k) * shape.n + p * TILE, shape.n, rows, cols)
                          : transposed(load_part(operand.data + p * TILE * total + from + k, total, cols, rows));
    store_part(panels + (p * shape.depth + k) * TILE, TILE, rows, TILE, tile);
  });
}

int64_t panel_floats(const SymmetricItem& item) {
  return tiles(item.n) * TILE * (item.k < MAX_DEPTH ? item.k : MAX_DEPTH);
}

void one_product(const SymmetricItem& item, float beta, float* a, Team team) {
  const bool same = item.A.data == item.B.data && item.A.depth_major == item.B.depth_major;
  const int64_t n = item.n, k = item.k;
  const float alpha = item.alpha;
  float *b = same ? a : a + panel_floats(item), *out = item.out;
  const float* addend = beta != 0 ? item.C : nullptr;
  for (int64_t from = 0; from < k; from += MAX_DEPTH) {
    const Shape shape{n, k - from < MAX_DEPTH ? k - from : MAX_DEPTH};
    pack(item.A, shape, from, k, a, team);
    if (!same) pack(item.B, shape, from, k, b, team);
    team.wait();
    const SymmetricUpdate update{out, addend, n, alpha, beta, 0};
    symmetric_product(Transposed{a, shape.depth}, b, tiles(n), shape.depth, team, update);
    team.wait();
    addend = out;
    beta = 1;
  }
}

}  // namespace

void symmetric_products(const SymmetricItem* items, int64_t count, float beta, int threads) {
  int64_t floats = 0;
  for (int64_t i = 0; i < count; ++i)
    if (2 * panel_floats(items[i]) > floats) floats = 2 * panel_floats(items[i]);
  for_each_item(count, floats, threads,
                [=](int64_t i, float* memory, Team team) { one_product(items[i], beta, memory, team); });
}

}  // namespace kpop::cpu::KPOP_ISA
