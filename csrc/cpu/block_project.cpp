// A matrix in two bases and their complements, and back: U_L is m x r, U_R is n x s, with few columns.
//
// What two small products make of both bases is stacked, so that C, or the lift, is a single product of depth r + s: G is
// packed once for each side, C or X is written once. Bound by multiply-adds: 2 m n (r + s) there, m n (r + s) back.
#include "sandwich.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// Takes panels from a workspace, one after the other. Without memory it only counts.
struct Room {
  float* memory;
  int64_t used = 0;

  Panels panels(int64_t depth, int64_t width) {
    const Panels taken{memory ? memory + used : nullptr, depth};
    used += depth * padded(width);
    return taken;
  }
};

// Where the tiles of a matrix lie, row after row or in panels; no data is no matrix.
struct Place {
  float* data = nullptr;
  int64_t down = 0, across = 0, stride = 0, rows = 0, cols = 0;

  static Place in_rows(const float* data, int64_t rows, int64_t cols) {
    return {const_cast<float*>(data), TILE * cols, TILE, cols, rows, cols};
  }
  static Place in_panels(Panels panels, int64_t rows, int64_t cols) {
    return {panels.data, TILE * TILE, TILE * panels.depth, TILE, padded(rows), padded(cols)};
  }
  KPOP_INLINE Tile load(int64_t i, int64_t j) const {
    return load_part(data + i * down + j * across, stride, rows - i * TILE, cols - j * TILE);
  }
  KPOP_INLINE void store(int64_t i, int64_t j, const Tile& tile) const {
    store_part(data + i * down + j * across, stride, rows - i * TILE, cols - j * TILE, tile);
  }
};

// result <- keep outer + weight (product + inner), also to `copy` and, turned over, to `turned`.
struct Epilogue {
  Place result, copy, turned;
  Place inner, outer;
  float weight = 1, keep = 1;

  KPOP_INLINE void operator()(int64_t i, int64_t j, Tile tile) const {
    if (inner.data) {
      const Tile addend = inner.load(i, j);
      for (int k = 0; k < TILE; ++k) tile.row[k] += addend.row[k];
    }
    if (outer.data) {
      const Tile old = outer.load(i, j);
      for (int k = 0; k < TILE; ++k) tile.row[k] = keep * old.row[k] + weight * tile.row[k];
    }
    if (result.data) result.store(i, j, tile);
    if (copy.data) copy.store(i, j, tile);
    if (turned.data) turned.store(j, i, transposed(tile));
  }
};

// One compiled copy for all products of this file.
__attribute__((noinline)) void multiply_into(Panels A, int64_t rows, Panels B, int64_t cols, int64_t depth, Team team,
                                             const Epilogue& epilogue) {
  product(A, rows, B, cols, depth, team, epilogue);
}

// Panels of a projection, by depth x width. `left` has U_Lᵀ above Aᵀ, `right` has Z = U_Lᵀ G above U_Rᵀ; Y = G U_R.
struct ProjectRoom {
  Panels G, Gt, U_L, U_R, Y, main, main_t, left, right;
  int64_t floats;

  ProjectRoom(const BlockParts& x, float* memory) {
    Room room{memory};
    const int64_t m = padded(x.rows), n = padded(x.cols), r = padded(x.left_rank), s = padded(x.right_rank);
    G = room.panels(m, n);
    Gt = room.panels(n, m);
    U_L = room.panels(m, r);
    U_R = room.panels(n, s);
    Y = room.panels(m, s);
    main = room.panels(r, s);
    main_t = room.panels(s, r);
    left = room.panels(r + s, m);
    right = room.panels(r + s, n);
    floats = room.used;
  }
};

void project(const BlockParts& x, float* memory, Team team) {
  const ProjectRoom use(x, memory);
  const int64_t m = x.rows, n = x.cols, r = x.left_rank, s = x.right_rank, R = padded(r), S = padded(s);
  const Panels left_A = use.left.below(R), right_U = use.right.below(R);
  pack(x.whole, m, n, false, use.G.data, team);
  pack(x.whole, m, n, true, use.Gt.data, team);
  pack(x.U_L, m, r, false, use.U_L.data, team);
  pack(x.U_R, n, s, false, use.U_R.data, team);
  pack(x.U_L, m, r, true, use.left.data, team, R + S);
  pack(x.U_R, n, s, true, right_U.data, team, R + S);
  team.wait();
  Epilogue Y, Z, main, A, B, C;
  Y.turned = Place::in_panels(use.Y, m, s);
  Z.result = Place::in_panels(use.right, r, n);
  multiply_into(use.U_R, s, use.Gt, m, padded(n), team, Y);
  multiply_into(use.U_L, r, use.G, n, padded(m), team, Z);
  team.wait();
  main.result = Place::in_rows(x.main, r, s);
  main.copy = Place::in_panels(use.main, r, s);
  main.turned = Place::in_panels(use.main_t, s, r);
  multiply_into(use.U_L, r, use.Y, s, padded(m), team, main);
  team.wait();
  A.weight = B.weight = C.weight = -1;
  A.outer = Y.turned;
  A.result = Place::in_rows(x.A, m, s);
  A.turned = Place::in_panels(left_A, s, m);
  B.outer = Z.result;
  B.result = Place::in_rows(x.B, r, n);
  multiply_into(use.left, m, use.main, s, R, team, A);
  multiply_into(use.main_t, r, right_U, n, S, team, B);
  team.wait();
  C.outer = Place::in_rows(x.whole, m, n);
  C.result = Place::in_rows(x.C, m, n);
  multiply_into(use.left, m, use.right, n, R + S, team, C);
}

// Panels of a lift. `left` has (A + U_L main)ᵀ above U_Lᵀ, `right` has U_Rᵀ above B; what is not there takes no room.
struct LiftRoom {
  int64_t right_depth, left_depth;
  Panels main, left, right;
  int64_t floats;

  LiftRoom(const BlockParts& x, float* memory) {
    Room room{memory};
    const int64_t r = padded(x.left_rank), s = padded(x.right_rank);
    right_depth = x.main || x.A ? s : 0;
    left_depth = x.main || x.B ? r : 0;
    main = room.panels(r, s);
    left = room.panels(right_depth + left_depth, padded(x.rows));
    right = room.panels(right_depth + left_depth, padded(x.cols));
    floats = room.used;
  }
};

void lift(const BlockParts& x, float alpha, float beta, float* memory, Team team) {
  const LiftRoom use(x, memory);
  const int64_t m = x.rows, n = x.cols, r = x.left_rank, s = x.right_rank;
  const int64_t above = use.right_depth, depth = above + use.left_depth;
  const Panels left_U = use.left.below(above);
  if (x.main) pack(x.main, r, s, false, use.main.data, team);
  if (use.left_depth) pack(x.U_L, m, r, true, left_U.data, team, depth);
  if (above) pack(x.U_R, n, s, true, use.right.data, team, depth);
  if (x.B) pack(x.B, r, n, false, use.right.below(above).data, team, depth);
  team.wait();
  Epilogue factor, whole;
  factor.inner = Place::in_rows(x.A, m, s);
  factor.turned = Place::in_panels(use.left, s, m);
  if (above) multiply_into(left_U, m, use.main, s, x.main ? use.left_depth : 0, team, factor);
  team.wait();
  whole.inner = Place::in_rows(x.C, m, n);
  whole.outer = whole.result = Place::in_rows(x.lifted, m, n);
  whole.weight = alpha;
  whole.keep = beta;
  multiply_into(use.left, m, use.right, n, x.B ? depth : above, team, whole);
}

}  // namespace

void block_project(const BlockParts* items, int64_t count, int threads) {
  const int64_t floats = count ? ProjectRoom(items[0], nullptr).floats : 0;
  for_each_item(count, floats, threads, [=](int64_t i, float* memory, Team team) { project(items[i], memory, team); });
}

void block_lift(const BlockParts* items, int64_t count, float alpha, float beta, int threads) {
  const int64_t floats = count ? LiftRoom(items[0], nullptr).floats : 0;
  for_each_item(count, floats, threads,
                [=](int64_t i, float* memory, Team team) { lift(items[i], alpha, beta, memory, team); });
}

}  // namespace kpop::cpu::KPOP_ISA
