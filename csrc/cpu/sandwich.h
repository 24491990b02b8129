// Products with a factor on each side, on matrices in panels.
//
// Everything is written as AᵀB, (LᵀG)ᵀ = GᵀL first, so that nothing but factors is ever transposed. What lies between
// two products stays in panels.
#pragma once
#include "kernels.h"
#include "panels.h"

namespace kpop::cpu::KPOP_ISA {

// Three buffers of panels: the matrix, what lies between its two products, and a factor.
struct Buffers {
  float *matrix, *between, *factor;
};

// out <- keep out + weight op(left) X op(right), where X is in the panels use.matrix as `sandwich` wants it. Of `out`
// nothing is read when `keep` is 0. Ends without waiting for the team; one compiled copy for all kernels.
void multiply_panels(const TwoSidedItem& item, bool left_transposed, bool right_transposed, Buffers use, Team team);

// The same of item.G, in buffer_floats() floats of `memory`.
void multiply_both_sides(const TwoSidedItem& item, bool left_transposed, bool right_transposed, float* memory,
                         Team team);

namespace {

KPOP_INLINE int64_t padded(int64_t n) { return tiles(n) * TILE; }

// A factor of one side, n x n, as the product takes it; no data is the identity.
struct Side {
  const float* data;
  bool transposed;
};

inline int64_t longer(int64_t m, int64_t n) { return m > n ? m : n; }

inline int64_t buffer_floats(int64_t m, int64_t n) {
  return 2 * padded(m) * padded(n) + padded(longer(m, n)) * padded(longer(m, n));
}

inline Buffers buffers(float* memory, int64_t m, int64_t n) {
  const int64_t size = padded(m) * padded(n);
  return {memory, memory + size, memory + 2 * size};
}

// Packs a rows x cols matrix, or its transpose, into panels whose depth is padded with zeros to whole tiles. Panels may
// be parts of longer ones, `panel_depth` deep.
__attribute__((noinline)) inline void pack(const float* data, int64_t rows, int64_t cols, bool transpose,
                                           float* panels, Team team, int64_t panel_depth = 0) {
  const int64_t depth = transpose ? cols : rows, width = transpose ? rows : cols;
  if (!panel_depth) panel_depth = padded(depth);
  each_packed(tiles(width), depth, team, [=](int64_t p, int64_t k) {
    const int64_t row = transpose ? p * TILE : k, col = transpose ? k : p * TILE;
    const Tile tile = load_part(data + row * cols + col, cols, rows - row, cols - col);
    store_tile(panels + (p * panel_depth + k) * TILE, TILE, transpose ? transposed(tile) : tile);
  });
}

// Panels of a matrix that are perhaps parts of longer ones.
struct Panels {
  float* data;
  int64_t depth;

  // Tile (i, j).
  KPOP_INLINE float* at(int64_t i, int64_t j) const { return data + (j * depth + i * TILE) * TILE; }
  // What lies below `rows` rows.
  Panels below(int64_t rows) const { return {data + rows * TILE, depth}; }
};

// Calls store(i, j, tile) for all tiles of AᵀB.
template <class Store>
KPOP_INLINE void product(Panels A, int64_t rows, Panels B, int64_t cols, int64_t depth, Team team, const Store& store) {
  full_product(Transposed{A.data, A.depth}, tiles(rows), B.data, TILE * B.depth, tiles(cols), depth, team, store);
}

// The same with panels as deep as the product.
template <class Store>
KPOP_INLINE void product(float* A, int64_t rows, float* B, int64_t cols, int64_t depth, Team team, const Store& store) {
  product(Panels{A, depth}, rows, Panels{B, depth}, cols, depth, team, store);
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

// The workspace that serves every item of a list.
template <class Item>
inline int64_t most_floats(const Item* items, int64_t count) {
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t floats = buffer_floats(items[i].rows, items[i].cols);
    if (floats > most && (items[i].left || items[i].right)) most = floats;
  }
  return most;
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
