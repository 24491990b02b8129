// QR factorization by Householder reflections, in panels.
//
// TILE reflections of a panel make one block reflector H = I - V T Vᵀ, whose products with the panels beside it run on
// tiles in registers. V is kept where it was found, from the panel's diagonal down, with its ones and zeros; the upper
// triangle R stays above it, and R's diagonal tiles lie apart. 8/3 n³ multiply-adds for Q, most of them in products.
#pragma once
#include <math.h>

#include "panels.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// Columns whose sum of squares is below it count as zero: of matrices with elements about 1 they are rounding errors,
// and their squares come too close to the smallest float to give a length.
constexpr float SQUARE_OF_ZERO = 1e-30f;

// What a factorization of count TILE columns leaves beside the panels: -T, its transpose and R's diagonal tile of each
// panel.
struct Reflectors {
  float *negative, *transposed_negative, *diagonal;

  static int64_t floats(int64_t count) { return 3 * count * TILE * TILE; }
  Reflectors(float* memory, int64_t count)
      : negative(memory),
        transposed_negative(memory + count * TILE * TILE),
        diagonal(memory + 2 * count * TILE * TILE) {}
};

KPOP_INLINE Row first_lanes(int count, Row x) {
  return lane_numbers(AllLanes()) < count ? x : Row{};
}

KPOP_INLINE Row after_lane(int lane, Row x) {
  return lane_numbers(AllLanes()) > lane ? x : Row{};
}

// Sums of products of column j with all columns, over `rows` rows of a panel.
KPOP_INLINE Row column_products(const float* a, int64_t rows, int j) {
  Row even{}, odd{};
  int64_t k = 0;
  for (; k + 1 < rows; k += 2) {
    even += a[k * TILE + j] * load(a + k * TILE);
    odd += a[(k + 1) * TILE + j] * load(a + (k + 1) * TILE);
  }
  if (k < rows) even += a[k * TILE + j] * load(a + k * TILE);
  return even + odd;
}

// Divides what lies below the diagonal in column j by its head, reflects the columns after it, and returns the products
// of column j + 1 with all columns.
KPOP_INLINE Row reflect_rows(float* __restrict a, int64_t rows, int j, float inverse, Row step) {
  const RowMask here = lane_numbers(AllLanes()) == j;
  const int next = j + 1 < TILE ? j + 1 : j;
  Row even{}, odd{};
  const auto reflect = [=](float* __restrict row, Row& sum) __attribute__((always_inline)) {
    const float v = row[j] * inverse;
    const Row x = load(row) - v * step;
    store(row, here ? Row{} + v : x);
    sum += row[next] * x;
  };
  int64_t k = 0;
  for (; k + 1 < rows; k += 2) {
    reflect(a + k * TILE, even);
    reflect(a + (k + 1) * TILE, odd);
  }
  if (k < rows) reflect(a + k * TILE, even);
  return even + odd;
}

// Factors the panel `a`, of `rows` rows from its diagonal down: V stays in it, R's tile goes to `diagonal`.
void factor_panel(float* a, int64_t rows, float* diagonal, float* tau) {
  Row products = column_products(a, rows, 0);
  for (int j = 0; j < TILE; ++j) {
    float* head = a + j * TILE;
    const bool reflects = products[j] > SQUARE_OF_ZERO;
    const float alpha = head[j], norm = sqrtf(products[j]);
    const float beta = alpha > 0 ? -norm : norm;
    tau[j] = reflects ? (beta - alpha) / beta : 0.0f;
    const float inverse = reflects ? 1 / (alpha - beta) : 0.0f;
    const Row top = load(head);
    const Row step = after_lane(j, tau[j] * inverse * (products - beta * top));
    Row r = top - step;
    r[j] = reflects ? beta : alpha;
    store(diagonal + j * TILE, r - first_lanes(j, r));
    store(head, first_lanes(j, top));
    head[j] = 1;
    if (j + 1 == TILE) {
      reflect_rows(head + TILE, rows - j - 1, j, inverse, step);
      return;
    }
    products = reflect_rows(head + TILE, rows - j - 1, j, inverse, step);
  }
}

// -T of H = I - V T Vᵀ: upper triangular, with tau on its diagonal.
void block_factor(const float* V, int64_t rows, const float* tau, float* negative, float* transposed_negative) {
  float overlap[TILE * TILE];
  store_tile(overlap, TILE, multiply(Columns{V}, V, rows));
  Tile T;
  for (int i = 0; i < TILE; ++i) T.row[i] = Row{};
  for (int j = 0; j < TILE; ++j) {
    for (int i = 0; i < j; ++i) {
      float sum = 0;
      for (int l = i; l < j; ++l) sum += T.row[i][l] * overlap[l * TILE + j];
      T.row[i][j] = -tau[j] * sum;
    }
    T.row[j][j] = -tau[j];
  }
  store_tile(negative, TILE, T);
  store_tile(transposed_negative, TILE, transposed(T));
}

// C <- C + V (Fᵀ VᵀC) for `count` panels C, BESIDE at most, that are `stride` floats apart; F is -T or its transpose.
KPOP_INLINE void reflect_panels(const float* V, const float* F, float* C, int64_t stride, int64_t count, int64_t rows) {
  constexpr int64_t SIZE = TILE * TILE;
  float inner[BESIDE * SIZE], weights[BESIDE * SIZE];
  multiply_each(Columns{V}, C, stride, rows, count,
                [&](int64_t c, const Tile& tile) { store_tile(inner + c * SIZE, TILE, tile); });
  multiply_each(Columns{F}, inner, SIZE, TILE, count,
                [&](int64_t c, const Tile& tile) { store_tile(weights + c * SIZE, TILE, tile); });
  for (int64_t k = 0; k < rows; k += TILE)
    multiply_each(Rows{V + k * TILE, rows}, weights, SIZE, TILE, count, [&](int64_t c, const Tile& change) {
      float* const target = C + c * stride + k * TILE;
      Tile tile = load_tile(target, TILE);
#pragma GCC unroll 16
      for (int r = 0; r < TILE; ++r) tile.row[r] += change.row[r];
      store_tile(target, TILE, tile);
    });
}

// Factors A, square with count TILE rows, in place.
void factor(float* A, int64_t count, Reflectors reflectors, Team team) {
  const int64_t n = count * TILE;
  for (int64_t p = 0; p < count; ++p) {
    float* V = A + tile_offset(p, p, n);
    const int64_t rows = n - p * TILE, at = p * TILE * TILE;
    if (team.rank == 0) {
      float tau[TILE];
      factor_panel(V, rows, reflectors.diagonal + at, tau);
      block_factor(V, rows, tau, reflectors.negative + at, reflectors.transposed_negative + at);
    }
    team.wait();
    for (int64_t c = p + 1 + BESIDE * team.rank; c < count; c += BESIDE * team.size)
      reflect_panels(V, reflectors.negative + at, A + tile_offset(p, c, n), TILE * n, beside(c, count), rows);
    team.wait();
  }
}

// Writes the orthogonal factor to Q.
void form_orthogonal(const float* A, int64_t count, Reflectors reflectors, float* Q, Team team) {
  const int64_t n = count * TILE;
  for (int64_t c = BESIDE * team.rank; c < count; c += BESIDE * team.size) {
    const int64_t end = c + beside(c, count);
    for (int64_t j = c; j < end; ++j) {
      float* panel = Q + j * TILE * n;
      for (int64_t i = 0; i < n * TILE; i += TILE) store(panel + i, Row{});
      for (int l = 0; l < TILE; ++l) panel[(j * TILE + l) * TILE + l] = 1;
    }
    // A reflector leaves panels before its own, unit vectors so far, as they are.
    for (int64_t p = end - 1; p >= 0; --p) {
      const int64_t first = c > p ? c : p;
      reflect_panels(A + tile_offset(p, p, n), reflectors.transposed_negative + p * TILE * TILE,
                     Q + tile_offset(p, first, n), TILE * n, end - first, n - p * TILE);
    }
  }
  team.wait();
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
