// Products with a factor on each side, and Adam between two of them, tile by tile while the tile is in registers:
//
//   G' = Lᵀ G R;  Adam's N in the epilogue of the last product;  W <- decay W - lr L N Rᵀ in that of the last one back.
//
// Everything is written as AᵀB on panels, (LᵀG)ᵀ = GᵀL first, so that nothing but factors is ever transposed. Gradient,
// moments and parameter are read once and written once; what lies between two products stays in panels. Bound by
// multiply-adds: 2 m n (m + n) for two sides there, and as many back.
#include <math.h>
#include "intrinsics.h"

#include "kernels.h"
#include "panels.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

KPOP_INLINE int64_t padded(int64_t n) { return tiles(n) * TILE; }

// A factor of one side, n x n, as the product takes it; no data is the identity.
struct Side {
  const float* data;
  bool transposed;
};

// Three buffers of panels: the matrix, what lies between its two products, and a factor.
struct Buffers {
  float *matrix, *between, *factor;
};

int64_t longer(int64_t m, int64_t n) { return m > n ? m : n; }

int64_t buffer_floats(int64_t m, int64_t n) {
  return 2 * padded(m) * padded(n) + padded(longer(m, n)) * padded(longer(m, n));
}

Buffers buffers(float* memory, int64_t m, int64_t n) {
  const int64_t size = padded(m) * padded(n);
  return {memory, memory + size, memory + 2 * size};
}

// Packs a rows x cols matrix, or its transpose, into panels whose depth is padded with zeros to whole tiles.
void pack(const float* data, int64_t rows, int64_t cols, bool transpose, float* panels, Team team) {
  const int64_t depth = transpose ? cols : rows, width = transpose ? rows : cols;
  for (int64_t p = team.rank; p < tiles(width); p += team.size) {
    float* panel = panels + p * TILE * padded(depth);
    for (int64_t k = 0; k < depth; k += TILE) {
      const int64_t row = transpose ? p * TILE : k, col = transpose ? k : p * TILE;
      const Tile tile = load_part(data + row * cols + col, cols, rows - row, cols - col);
      store_tile(panel + k * TILE, TILE, transpose ? transposed(tile) : tile);
    }
  }
}

// Calls store(i, j, tile) for all tiles of AᵀB.
template <class Store>
KPOP_INLINE void product(const float* A, int64_t rows, const float* B, int64_t cols, int64_t depth, Team team,
                         const Store& store) {
  Turns turns(team);
  for (int64_t j = 0; j < tiles(cols); ++j)
    for (int64_t i = 0; i < tiles(rows); ++i)
      if (turns.mine()) store(i, j, multiply(Columns{A + i * TILE * depth}, B + j * TILE * depth, depth));
}

// Where tile (i, j) of a matrix goes in panels of its own, and of its transpose.
KPOP_INLINE float* place(float* panels, int64_t i, int64_t j, int64_t rows) {
  return panels + (j * padded(rows) + i * TILE) * TILE;
}

// Calls store(i, j, tile) for all tiles of op(L) X op(R), X being m x n in `matrix`: in panels of its own if there is a
// left factor, of its transpose otherwise. At least one factor is there. Ends without waiting for the team.
template <class Store>
KPOP_INLINE void sandwich(Side left, Side right, int64_t m, int64_t n, Buffers use, Team team, const Store& store) {
  if (left.data) pack(left.data, m, m, !left.transposed, use.factor, team);
  if (left.data && right.data) {
    float* between = use.between;
    team.wait();
    product(use.matrix, n, use.factor, m, padded(m), team,
            [=](int64_t i, int64_t j, const Tile& tile) { store_tile(place(between, i, j, n), TILE, tile); });
    team.wait();
  }
  if (right.data) pack(right.data, n, n, right.transposed, use.factor, team);
  team.wait();
  if (!right.data) return product(use.factor, m, use.matrix, n, padded(m), team, store);
  product(left.data ? use.between : use.matrix, m, use.factor, n, padded(n), team, store);
}

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
  float *N = back.matrix, *exp_avg = item.exp_avg, *exp_avg_sq = item.exp_avg_sq, *param = item.param;
  const float limit = update.limit, decay = update.decay, lr = update.lr;
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
  sandwich({item.left, false}, {item.right, true}, m, n, back, team, [=](int64_t i, int64_t j, const Tile& tile) {
    const int64_t rows = m - i * TILE, cols = n - j * TILE;
    float* W = param + i * TILE * n + j * TILE;
    Tile w = load_part(W, n, rows, cols);
#pragma GCC unroll 16
    for (int r = 0; r < TILE; ++r) w.row[r] = decay * w.row[r] - lr * tile.row[r];
    store_part(W, n, rows, cols, w);
  });
}

template <class Item>
int64_t most_floats(const Item* items, int64_t count) {
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t floats = buffer_floats(items[i].rows, items[i].cols);
    if (floats > most && (items[i].left || items[i].right)) most = floats;
  }
  return most;
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

void two_sided(const TwoSidedItem* items, int64_t count, bool left_transposed, bool right_transposed, int threads) {
  for_each_item(count, most_floats(items, count), threads, [=](int64_t i, float* memory, Team team) {
    const TwoSidedItem& item = items[i];
    const int64_t m = item.rows, n = item.cols;
    const Buffers use = buffers(memory, m, n);
    float* out = item.out;
    pack(item.G, m, n, !item.left, use.matrix, team);
    sandwich({item.left, left_transposed}, {item.right, right_transposed}, m, n, use, team,
             [=](int64_t r, int64_t c, const Tile& tile) {
               store_part(out + r * TILE * n + c * TILE, n, m - r * TILE, n - c * TILE, tile);
             });
  });
}

}  // namespace kpop::cpu::KPOP_ISA
