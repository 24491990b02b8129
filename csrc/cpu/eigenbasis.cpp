// New eigenbases: signs and order that agree with the old ones, and the change P = Q'ᵀ Q. From LAPACK's eigenpairs, or by
// one step of orthogonal iteration from a basis that nearly is the matrix's eigenbasis:
//
//   S Q = Q' R,  P = Q'ᵀ Q,  λ = diag(Q'ᵀ S Q') = diag(R Pᵀ).
//
// The columns of SQ are factored by falling qᵀSq, so that larger eigenvalues get the earlier reflections, and the new
// columns return to the places of the old ones or, if that is asked, go by falling λ. 2 n³ multiply-adds for both
// products, 4/3 n³ for the factorization and as many for Q'.
#include <float.h>
#include <math.h>

#include "kernels.h"
#include "panels.h"
#include "reflections.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

typedef int32_t Index __attribute__((may_alias));

// Memory of one matrix, padded to whole tiles.
struct Workspace {
  int64_t n, padded, count;
  float *A, *B, *old, *fresh;     // panels: what is factored, what lies between, and the bases
  float *reflectors, *quotients;  // see Reflectors; qᵀSq, then λ
  Index *order, *place, *source;  // column of Q that comes j-th, its inverse, and which new column goes where

  Workspace(int64_t n, float* memory) : n(n), padded(tiles(n) * TILE), count(tiles(n)) {
    float** const parts[] = {&A, &B, &old, &fresh};
    for (float** part : parts) {
      *part = memory;
      memory += padded * padded;
    }
    reflectors = memory;
    quotients = reflectors + Reflectors::floats(count);
    order = reinterpret_cast<Index*>(quotients + padded);
    place = order + padded;
    source = place + padded;
  }

  static int64_t floats(int64_t n) {
    const int64_t count = tiles(n), padded = count * TILE;
    return 4 * padded * padded + Reflectors::floats(count) + 4 * padded;
  }

  int64_t offset(int64_t row, int64_t col) const { return (col / TILE * padded + row) * TILE + col % TILE; }
};

// A power of two in two factors, for one alone may be no float.
struct Scale {
  float first, second;
};

// What brings a matrix's mean diagonal near 1; zero where there is nothing to decompose.
Scale scale_of(const float* S, int64_t n) {
  double trace = 0;
  float poison = 0;
  for (int64_t i = 0; i < n * n; ++i) poison += 0.0f * S[i];
  for (int64_t i = 0; i < n; ++i) trace += S[i * n + i];
  const double mean = trace / static_cast<double>(n);
  if (poison != 0 || !(mean > 0) || !(mean <= FLT_MAX)) return {};
  int exponent;
  frexp(mean, &exponent);
  const int first = (1 - exponent) / 2;
  return {ldexpf(1, first), ldexpf(1, 1 - exponent - first)};
}

bool any_nonzero(const float* S, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (S[i] != 0) return true;
  return false;
}

// Keeps the old basis.
void keep(const BasisItem& item, bool failed) {
  for (int64_t i = 0; i < item.n * item.n; ++i) {
    item.Q[i] = item.old[i];
    item.P[i] = 0;
  }
  for (int64_t i = 0; i < item.n; ++i) {
    item.P[i * item.n + i] = 1;
    item.eigvals[i] = failed ? NAN : 0;
  }
  *item.failed = failed;
}

// Packs a matrix times `scale` into panels, and continues it with the identity.
void pack_square(const float* data, const Workspace& at, Scale scale, float* panels, Team team) {
  for (int64_t j = team.rank; j < at.count; j += team.size)
    for (int64_t i = 0; i < at.count; ++i) {
      Tile tile = load_part(data + (i * at.n + j) * TILE, at.n, at.n - i * TILE, at.n - j * TILE);
#pragma GCC unroll 16
      for (int r = 0; r < TILE; ++r) tile.row[r] = tile.row[r] * scale.first * scale.second;
      store_tile(panels + tile_offset(i, j, at.padded), TILE, tile);
    }
  team.wait();
  if (team.rank == 0)
    for (int64_t i = at.n; i < at.padded; ++i) panels[at.offset(i, i)] = 1;
  team.wait();
}

// panels of AᵀB
void multiply_square(const Workspace& at, const float* A, const float* B, float* out, Team team) {
  full_product(Transposed{A, at.padded}, B, at.count, at.padded, team, [=](int64_t i, int64_t j, const Tile& tile) {
    store_tile(out + tile_offset(i, j, at.padded), TILE, tile);
  });
  team.wait();
}

// Orders `list` by falling value; equals keep their order.
void sort_falling(Index* list, int64_t n, const float* value) {
  for (int64_t i = 1; i < n; ++i) {
    const Index moved = list[i];
    int64_t j = i;
    for (; j > 0 && value[list[j - 1]] < value[moved]; --j) list[j] = list[j - 1];
    list[j] = moved;
  }
}

// The columns of Q in the order of falling qᵀSq; those of the padding stay last.
void order_columns(const Workspace& at, const float* SQ) {
  for (int64_t p = 0; p < at.count; ++p) {
    Row sum{};
    for (int64_t k = 0; k < at.padded; ++k) {
      const int64_t row = (p * at.padded + k) * TILE;
      sum += load(at.old + row) * load(SQ + row);
    }
    store(at.quotients + p * TILE, sum);
  }
  for (int64_t j = 0; j < at.padded; ++j) at.order[j] = static_cast<Index>(j);
  sort_falling(at.order, at.n, at.quotients);
  for (int64_t j = 0; j < at.padded; ++j) at.place[at.order[j]] = static_cast<Index>(j);
}

void take_columns(const Workspace& at, const float* from, float* to, Team team) {
  for (int64_t j = team.rank; j < at.padded; j += team.size) {
    const float* column = from + at.offset(0, at.order[j]);
    float* target = to + at.offset(0, j);
    for (int64_t k = 0; k < at.padded; ++k) target[k * TILE] = column[k * TILE];
  }
  team.wait();
}

// λ = diag(R Pᵀ): R lies above the diagonal of A, its diagonal tiles apart.
void eigenvalues(const Workspace& at, const Reflectors& reflectors, const float* P) {
  for (int64_t i = 0; i < at.count; ++i)
    for (int64_t row = i * TILE; row < (i + 1) * TILE; ++row) {
      Row sum = load(reflectors.diagonal + row * TILE) * load(P + at.offset(row, i * TILE));
      for (int64_t p = i + 1; p < at.count; ++p)
        sum += load(at.A + at.offset(row, p * TILE)) * load(P + at.offset(row, p * TILE));
      float total = 0;
      for (int lane = 0; lane < TILE; ++lane) total += sum[lane];
      at.quotients[row] = total;
    }
}

// Writes the eigenvalues of the columns chosen for each place and tells whether all are finite.
bool write_eigenvalues(const Workspace& at, const BasisItem& item, Scale scale) {
  float poison = 0;
  for (int64_t c = 0; c < at.n; ++c) {
    const float eigenvalue = at.quotients[at.source[c]];
    item.eigvals[c] = eigenvalue / scale.first / scale.second;
    poison += 0.0f * eigenvalue;
  }
  return poison == 0;
}

// Writes Q' and P, the columns of Q' with the signs of the old ones at their places.
void write_basis(const Workspace& at, const BasisItem& item, const float* P, Team team) {
  for (int64_t c = team.rank; c < at.n; c += team.size) {
    const int64_t from = at.source[c];
    const float sign = P[at.offset(from, at.place[c])] < 0 ? -1.0f : 1.0f;
    for (int64_t k = 0; k < at.n; ++k) item.P[c * at.n + k] = sign * P[at.offset(from, at.place[k])];
  }
  for (int64_t i = team.rank; i < at.count; i += team.size)
    for (int64_t c = 0; c < at.n; ++c) {
      const int64_t from = at.source[c];
      const float sign = P[at.offset(from, at.place[c])] < 0 ? -1.0f : 1.0f;
      const float* column = at.fresh + at.offset(0, from);
      const int64_t end = (i + 1) * TILE < at.n ? (i + 1) * TILE : at.n;
      for (int64_t k = i * TILE; k < end; ++k) item.Q[k * at.n + c] = sign * column[k * TILE];
    }
}

void orthogonal_step(const BasisItem& item, bool sort, float* memory, Team team) {
  const Workspace at(item.n, memory);
  const Reflectors reflectors(at.reflectors, at.count);
  const Scale scale = scale_of(item.S, item.n);
  if (scale.first == 0) {
    if (team.rank == 0) keep(item, any_nonzero(item.S, item.n * item.n));
    return;
  }
  float *const SQ = at.B, *const ordered = at.B, *const P = at.old;
  pack_square(item.S, at, scale, at.A, team);
  pack_square(item.old, at, {1, 1}, at.old, team);
  multiply_square(at, at.A, at.old, SQ, team);
  if (team.rank == 0) order_columns(at, SQ);
  team.wait();
  take_columns(at, SQ, at.A, team);
  take_columns(at, at.old, ordered, team);
  factor(at.A, at.count, reflectors, team);
  form_orthogonal(at.A, at.count, reflectors, at.fresh, team);
  multiply_square(at, at.fresh, ordered, P, team);
  if (team.rank == 0) {
    // A basis or a product that is not finite makes eigenvalues so too.
    eigenvalues(at, reflectors, P);
    for (int64_t c = 0; c < at.n; ++c) at.source[c] = at.place[c];
    if (sort) sort_falling(at.source, at.n, at.quotients);
    *item.failed = !write_eigenvalues(at, item, scale);
  }
  team.wait();
  if (!*item.failed) return write_basis(at, item, P, team);
  if (team.rank == 0) keep(item, true);
}

void prepare(const BasisItem& item, float shift) {
  const int64_t n = item.n;
  const Scale scale = scale_of(item.S, n);
  const bool usable = scale.first != 0;
  for (int64_t i = 0; i < n * n; ++i) item.Q[i] = usable ? item.S[i] * scale.first * scale.second : 0;
  for (int64_t i = 0; i < n; ++i) item.Q[i * n + i] += usable ? shift : 1;
}

void take(const BasisItem& item, Eigenpairs found, float shift, bool sort, float* memory, Team team) {
  const Workspace at(item.n, memory);
  const int64_t n = item.n;
  const Scale scale = scale_of(item.S, n);
  if (scale.first == 0) {
    if (team.rank == 0) keep(item, any_nonzero(item.S, n * n));
    return;
  }
  float* const P = at.old;
  pack_square(item.old, at, {1, 1}, at.B, team);
  pack_square(found.vectors, at, {1, 1}, at.A, team);
  for (int64_t j = team.rank; j < at.count; j += team.size)
    for (int64_t i = 0; i < at.count; ++i)
      store_tile(at.fresh + tile_offset(i, j, at.padded), TILE,
                 transposed(load_tile(at.A + tile_offset(j, i, at.padded), TILE)));
  team.wait();
  multiply_square(at, at.fresh, at.B, P, team);
  if (team.rank == 0) {
    float poison = 0;
    for (int64_t i = 0; i < n * n; ++i) poison += 0.0f * found.vectors[i];
    for (int64_t c = 0; c < n; ++c) {
      at.quotients[c] = found.values[c] - shift + poison;
      at.place[c] = static_cast<Index>(c);
      at.source[c] = static_cast<Index>(sort ? n - 1 - c : c);
    }
    *item.failed = !write_eigenvalues(at, item, scale);
  }
  team.wait();
  if (!*item.failed) return write_basis(at, item, P, team);
  if (team.rank == 0) keep(item, true);
}

int64_t most_floats(const BasisItem* items, int64_t count) {
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i)
    if (Workspace::floats(items[i].n) > most) most = Workspace::floats(items[i].n);
  return most;
}

}  // namespace

void refresh_eigenbasis(const BasisItem* items, int64_t count, bool sort, int threads) {
  for_each_item(count, most_floats(items, count), threads,
                [=](int64_t i, float* memory, Team team) { orthogonal_step(items[i], sort, memory, team); });
}

void prepare_eigenbasis(const BasisItem* items, int64_t count, float shift, int threads) {
  for_each_item(count, 0, threads, [=](int64_t i, float*, Team team) {
    if (team.rank == 0) prepare(items[i], shift);
  });
}

void take_eigenbasis(const BasisItem* items, const Eigenpairs* found, int64_t count, float shift, bool sort,
                     int threads) {
  for_each_item(count, most_floats(items, count), threads, [=](int64_t i, float* memory, Team team) {
    take(items[i], found[i], shift, sort, memory, team);
  });
}

}  // namespace kpop::cpu::KPOP_ISA
