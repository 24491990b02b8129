// out = alpha A B + beta C for products known to be symmetric: tiles of the lower triangle, each stored twice.
// Bound by multiply-adds: n² k of them for each matrix.
#include "kernels.h"
#include "panels.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// Depth of the panels of one pass; longer sums are added up in `out`.
constexpr int64_t MAX_DEPTH = 1024;

struct Shape {
  int64_t n, depth;
};

// Packs rows [from, from + depth) of an operand, of which the matrix has `total`, into panels.
void pack(const Operand& operand, Shape shape, int64_t from, int64_t total, float* panels, Team team) {
  for (int64_t p = team.rank; p < tiles(shape.n); p += team.size) {
    float* panel = panels + p * TILE * shape.depth;
    const int64_t cols = shape.n - p * TILE;
    for (int64_t k = 0; k < shape.depth; k += TILE) {
      const int64_t rows = shape.depth - k;
      const Tile tile = operand.depth_major
                            ? load_part(operand.data + (from + k) * shape.n + p * TILE, shape.n, rows, cols)
                            : transposed(load_part(operand.data + p * TILE * total + from + k, total, cols, rows));
      store_part(panel + k * TILE, TILE, rows, TILE, tile);
    }
  }
}

void store_symmetric(float* out, const float* C, int64_t n, int64_t i, int64_t j, Tile tile, float alpha, float beta) {
  const int64_t row = i * TILE, col = j * TILE;
  if (C) {
    const Tile addend = load_part(C + row * n + col, n, n - row, n - col);
#pragma GCC unroll 16
    for (int r = 0; r < TILE; ++r) tile.row[r] = alpha * tile.row[r] + beta * addend.row[r];
  } else {
#pragma GCC unroll 16
    for (int r = 0; r < TILE; ++r) tile.row[r] *= alpha;
  }
  if (i == j) tile = mirrored(tile);
  store_part(out + row * n + col, n, n - row, n - col, tile);
  if (i != j) store_part(out + col * n + row, n, n - col, n - row, transposed(tile));
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
    symmetric_product(Transposed{a, shape.depth}, b, tiles(n), shape.depth, team,
                      [=](int64_t i, int64_t j, const Tile& tile) {
                        store_symmetric(out, addend, n, i, j, tile, alpha, beta);
                      });
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
