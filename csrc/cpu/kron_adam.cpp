// Adam between two products with a factor on each side, tile by tile while the tile is in registers:
//
//   G' = Lᵀ G R;  Adam's N in the epilogue of the last product;  W <- decay W - lr L N Rᵀ in that of the last one back.
//
// Gradient, moments and parameter are read once and written once. Bound by multiply-adds: 2 m n (m + n) for two sides
// there, and as many back.
#include <math.h>

#include "sandwich.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

KPOP_INLINE Row square_root(Row x) {
#if defined(__AVX512F__)
  return reinterpret_cast<Row>(_mm512_sqrt_ps(reinterpret_cast<__m512>(x)));
#elif defined(__AVX2__)
  return reinterpret_cast<Row>(_mm256_sqrt_ps(reinterpret_cast<__m256>(x)));
#else
  for (int lane = 0; lane < TILE; ++lane) x[lane] = sqrtf(x[lane]);
  return x;
#endif
}

// Replaces rotated gradients by the normalized update, and averages them into the moments.
KPOP_INLINE Row adam_row(Row g, Row& m, Row& v, const AdamStep& s, float limit) {
  m = s.beta1 * m + s.one_minus_beta1 * (s.sign * g);
  v = s.beta2 * v + s.one_minus_beta2 * g * g;
  const Row N = m * s.correction1 / (square_root(v * s.correction2) + s.eps);
  const Row below = N > limit ? Row{} + limit : N;
  return below < -limit ? Row{} - limit : below;
}

// Adam on one tile of a rotated gradient. What lies outside the matrix becomes zero, not 0 / (0 + eps).
KPOP_INLINE Tile adam_tile(Tile g, float* m, float* v, int64_t stride, int64_t rows, int64_t cols, const AdamStep& step,
                           float limit) {
  Tile first = load_part(m, stride, rows, cols), second = load_part(v, stride, rows, cols);
#pragma GCC unroll 16
  for (int r = 0; r < TILE; ++r) g.row[r] = adam_row(g.row[r], first.row[r], second.row[r], step, limit);
  store_part(m, stride, rows, cols, first);
  store_part(v, stride, rows, cols, second);
  if (rows < TILE || cols < TILE) {
    const RowMask inside = lane_numbers(AllLanes()) < static_cast<int32_t>(cols < TILE ? cols : TILE);
    for (int r = 0; r < TILE; ++r) g.row[r] = r < rows ? (inside ? g.row[r] : Row{}) : Row{};
  }
  return g;
}

// Without bases there are no products: one pass over the elements.
void adam_alone(const KronAdamItem& item, const AdamStep& s, const KronUpdate& update, Team team) {
  const int64_t count = item.rows * item.cols;
  const int64_t begin = count * team.rank / team.size, end = count * (team.rank + 1) / team.size;
  const float* __restrict G = item.grad;
  float* __restrict W = item.param;
  float* __restrict M = item.exp_avg;
  float* __restrict V = item.exp_avg_sq;
  for (int64_t i = begin; i < end; ++i) {
    const float mi = s.beta1 * M[i] + s.one_minus_beta1 * (s.sign * G[i]);
    const float vi = s.beta2 * V[i] + s.one_minus_beta2 * G[i] * G[i];
    M[i] = mi;
    V[i] = vi;
    const float N = mi * s.correction1 / (sqrtf(vi * s.correction2) + s.eps);
    const float below = N > update.limit ? update.limit : N;
    W[i] = update.decay * W[i] - update.lr * (below < -update.limit ? -update.limit : below);
  }
}

void adam_between(const KronAdamItem& item, const AdamStep& step, const KronUpdate& update, float* memory, Team team) {
  const int64_t m = item.rows, n = item.cols;
  const bool both = item.left && item.right, plain = item.left;
  const Buffers there = buffers(memory, m, n);
  // One factor alone leaves `between` free; N may not overwrite what other tiles still read.
  const Buffers back{both ? there.matrix : there.between, both ? there.between : there.matrix, there.factor};
  pack(item.grad, m, n, !plain, there.matrix, team);
  float *N = back.matrix, *exp_avg = item.exp_avg, *exp_avg_sq = item.exp_avg_sq;
  const float limit = update.limit;
  sandwich({item.left, true}, {item.right, false}, m, n, there, team, [=](int64_t i, int64_t j, const Tile& tile) {
    const int64_t at = i * TILE * n + j * TILE;
    const Tile normalized =
        adam_tile(tile, exp_avg + at, exp_avg_sq + at, n, m - i * TILE, n - j * TILE, step, limit);
    if (plain)
      store_tile(place(N, i, j, m), TILE, normalized);
    else
      store_tile(place(N, j, i, n), TILE, transposed(normalized));
  });
  team.wait();
  multiply_panels({nullptr, item.left, item.right, item.param, m, n, update.decay, -update.lr}, false, true, back, team);
}

}  // namespace

void kron_adam(const KronAdamItem* items, int64_t count, const AdamStep& step, const KronUpdate& update, int threads) {
  for_each_item(count, most_floats(items, count), threads, [=](int64_t i, float* memory, Team team) {
    const KronAdamItem& item = items[i];
    AdamStep own = step;
    own.correction1 = item.correction1;
    own.correction2 = item.correction2;
    if (item.left || item.right)
      adam_between(item, own, update, memory, team);
    else
      adam_alone(item, own, update, team);
  });
}

}  // namespace kpop::cpu::KPOP_ISA
