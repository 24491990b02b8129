// Inverse roots of small symmetric matrices by the coupled Newton–Schulz iteration, in panels that stay in the cache
// from the first step to the last.
//
// P = ZY is computed in full, the updates of Y and Z by halves: with Y and Z exactly symmetric, Y(ZY) and (ZY)Z are
// symmetric whether or not Y and Z commute, ZY is not, and mirroring it would pull the two apart until they diverge.
#include <float.h>
#include <math.h>

#include "definite.h"
#include "kernels.h"
#include "panels.h"
#include "tiny_root.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

constexpr float SAFETY = 1.01f;

// The matrices of one iteration: order n, padded to whole tiles, in panels.
struct Iteration {
  int64_t n, padded;
  float *Y, *Z, *P, *spare, *sums;

  Iteration(int64_t n, float* memory) : n(n), padded(tiles(n) * TILE) {
    float** const parts[] = {&Y, &Z, &P, &spare, &sums};
    for (float** part : parts) {
      *part = memory;
      memory += padded * padded;
    }
  }

  static int64_t floats(int64_t n) {
    const int64_t padded = tiles(n) * TILE;
    return 4 * padded * padded + padded;
  }

  float* diagonal(float* matrix, int64_t i) const {
    return matrix + (i / TILE * padded + i) * TILE + i % TILE;
  }
};

void set_padding(const Iteration& it, float* matrix, float value) {
  for (int64_t i = it.n; i < it.padded; ++i) *it.diagonal(matrix, i) = value;
}

// matrix <- factor matrix + shift I
void scale_and_shift(const Iteration& it, const float* from, float* to, float factor, float shift) {
  for (int64_t i = 0; i < it.padded * it.padded; i += TILE) store(to + i, factor * load(from + i));
  for (int64_t i = 0; i < it.padded; ++i) *it.diagonal(to, i) += shift;
}

// Loads (A + Aᵀ)/2 into Y and returns its largest magnitude, or NaN if there is one.
float load_symmetrized(const Iteration& it, const float* A) {
  Row largest{}, poison{};
  for (int64_t j = 0; j < it.padded / TILE; ++j)
    for (int64_t i = 0; i <= j; ++i) {
      const int64_t row = i * TILE, col = j * TILE;
      const Tile upper = load_part(A + row * it.n + col, it.n, it.n - row, it.n - col);
      const Tile lower = transposed(load_part(A + col * it.n + row, it.n, it.n - col, it.n - row));
      Tile mean;
#pragma GCC unroll 16
      for (int r = 0; r < TILE; ++r) {
        mean.row[r] = 0.5f * upper.row[r] + 0.5f * lower.row[r];
        const Row size = magnitude(mean.row[r]);
        largest = size > largest ? size : largest;
        poison += 0.0f * mean.row[r];
      }
      store_tile(it.Y + tile_offset(i, j, it.padded), TILE, mean);
      if (i != j) store_tile(it.Y + tile_offset(j, i, it.padded), TILE, transposed(mean));
    }
  float result = 0, not_a_number = 0;
  for (int j = 0; j < TILE; ++j) {
    result = fmaxf(result, largest[j]);
    not_a_number += poison[j];
  }
  return result + not_a_number;
}

// The smaller of the Wolkowicz–Styan and the Collatz–Wielandt bound, with a margin. The padding must be zero.
float spectrum_bound(const Iteration& it, const float* matrix) {
  double trace = 0, squares = 0;
  for (int64_t i = 0; i < it.n; ++i) trace += *it.diagonal(const_cast<float*>(matrix), i);
  for (int64_t p = 0; p < it.padded; p += TILE) {
    Row sum{}, square{};
    for (int64_t k = 0; k < it.n; ++k) {
      const Row row = load(matrix + p * it.padded + k * TILE);
      sum += magnitude(row);
      square += row * row;
    }
    const Row least = Row{} + FLT_MIN;
    store(it.sums + p, sum > least ? sum : least);
    for (int j = 0; j < TILE; ++j) squares += square[j];
  }
  float collatz_wielandt = 0;
  for (int64_t p = 0; p < it.padded; p += TILE) {
    Row sum{};
    for (int64_t k = 0; k < it.n; ++k) sum += it.sums[k] * magnitude(load(matrix + p * it.padded + k * TILE));
    const Row ratio = sum / load(it.sums + p);
    for (int j = 0; j < TILE; ++j) collatz_wielandt = fmaxf(collatz_wielandt, ratio[j]);
  }
  const double mean = trace / it.n, rms = sqrt(squares / it.n);
  const double wolkowicz_styan = mean + sqrt(fmax((rms - mean) * (rms + mean), 0) * (it.n - 1));
  return SAFETY * fminf(static_cast<float>(wolkowicz_styan), collatz_wielandt);
}

// A symmetric matrix as a left factor: its panels are read in order.
Transposed symmetric(const Iteration& it, const float* matrix) { return {matrix, it.padded}; }

// to <- a X + b times the product of a left factor and B, known to be symmetric.
template <class Factor>
void update(const Iteration& it, Factor A, const float* B, const float* X, float* to, float a, float b, Team team) {
  symmetric_product(A, B, it.padded / TILE, it.padded, team, [=](int64_t i, int64_t j, Tile tile) {
    const Tile old = load_tile(X + tile_offset(i, j, it.padded), TILE);
#pragma GCC unroll 16
    for (int r = 0; r < TILE; ++r) tile.row[r] = a * old.row[r] + b * tile.row[r];
    if (i == j) tile = mirrored(tile);
    store_tile(to + tile_offset(i, j, it.padded), TILE, tile);
    if (i != j) store_tile(to + tile_offset(j, i, it.padded), TILE, transposed(tile));
  });
  team.wait();
}

// P <- ZY.
void multiply_in_full(const Iteration& it, Team team) {
  full_product(symmetric(it, it.Z), it.Y, it.padded / TILE, it.padded, team, [=](int64_t i, int64_t j, const Tile& tile) {
    store_tile(it.P + tile_offset(i, j, it.padded), TILE, tile);
  });
  team.wait();
}

void exchange(float*& a, float*& b) {
  float* const before = a;
  a = b;
  b = before;
}

enum class Limit { root, inverse_root };

// Takes Y to Y^(1/2) or Z to Y^(-1/2), Z starting as the identity.
void iterate(Iteration& it, const Schedule& schedule, Limit wanted, Team team) {
  const int last = schedule.steps - 1;
  for (int step = 0; step <= last; ++step) {
    const float a = schedule.coefficients[2 * step], b = schedule.coefficients[2 * step + 1];
    const bool update_Y = step < last || wanted == Limit::root;
    const bool update_Z = step < last || wanted == Limit::inverse_root;
    if (step == 0) {
      if (update_Y) update(it, symmetric(it, it.Y), it.Y, it.Y, it.spare, a, b, team);
      if (team.rank == 0) scale_and_shift(it, it.Y, it.Z, b, a);
      team.wait();
      if (update_Y) exchange(it.Y, it.spare);
      continue;
    }
    multiply_in_full(it, team);
    if (update_Y) {
      update(it, symmetric(it, it.Y), it.P, it.Y, it.spare, a, b, team);
      exchange(it.Y, it.spare);
    }
    if (update_Z) {
      update(it, Untransposed{it.P, it.padded}, it.Z, it.Z, it.spare, a, b, team);
      exchange(it.Z, it.spare);
    }
  }
}

void store_result(const Iteration& it, const float* matrix, float* out, float factor, Team team) {
  for (int64_t j = team.rank; j < it.padded / TILE; j += team.size)
    for (int64_t i = 0; i < it.padded / TILE; ++i) {
      Tile tile = load_tile(matrix + tile_offset(i, j, it.padded), TILE);
#pragma GCC unroll 16
      for (int r = 0; r < TILE; ++r) tile.row[r] *= factor;
      store_part(out + i * TILE * it.n + j * TILE, it.n, it.n - i * TILE, it.n - j * TILE, tile);
    }
}

void fill(float* out, int64_t count, float value) {
  for (int64_t i = 0; i < count; ++i) out[i] = value;
}

// Normalizes A into Y with its spectrum in [0, 1); returns the bound in units of `unit`, a power of 16 that takes the
// size of the entries out before anything is squared and has exact roots.
float normalize(const Iteration& it, const float* A, const RootOptions& options, float& unit) {
  const float largest = load_symmetrized(it, A) + options.damping;
  unit = 1;
  if (!isfinite(largest)) return NAN;
  if (largest == 0) return 0;
  int exponent;
  frexpf(largest, &exponent);
  exponent = static_cast<int>(floor((exponent - 1) / 4.0)) * 4;
  unit = ldexpf(1, exponent > 120 ? 120 : exponent < -120 ? -120 : exponent);
  scale_and_shift(it, it.Y, it.Y, 1 / unit, 0);
  float bound = spectrum_bound(it, it.Y);
  const float delta = options.damping / unit + options.relative_damping * bound;
  bound += SAFETY * delta;
  if (bound == 0) return 0;
  scale_and_shift(it, it.Y, it.Y, 1 / bound, delta / bound);
  set_padding(it, it.Y, 1);
  return bound;
}

// The number of the first shorter schedule that is proved to serve Y, or of none of them, by bisection. Where only
// some are short enough, the longest of them comes first: if it fails, there is nothing left to find.
int shortest_schedule(const Iteration& it, const RootOptions& options, int64_t most_steps) {
  const auto serves = [&](int i) {
    return is_definite(it.Y, it.padded / TILE, options.shorter[i].least + it.n * (FLT_EPSILON / 2), it.P);
  };
  int first = 0, end = options.shorter_count;
  if (options.schedule.steps > most_steps) {
    while (end > 0 && options.shorter[end - 1].schedule.steps > most_steps) --end;
    if (end == 0 || !serves(--end)) return options.shorter_count;
  }
  while (first < end) {
    const int middle = (first + end) / 2;
    if (serves(middle))
      end = middle;
    else
      first = middle + 1;
  }
  return first;
}

const Schedule& schedule_for(const RootOptions& options, int shorter) {
  return shorter < options.shorter_count ? options.shorter[shorter].schedule : options.schedule;
}

// The root of Y for p = 1, 2, 4; returns what it must be multiplied with.
float take_root(Iteration& it, const Schedule& schedule, const RootOptions& options, float*& root, Team team) {
  iterate(it, schedule, Limit::inverse_root, team);
  root = it.Z;
  if (options.p == 1) {
    update(it, symmetric(it, it.Z), it.Z, it.Z, it.spare, 0, 1, team);
    root = it.spare;
  }
  if (options.p != 4) return 1;
  float* const bound = it.sums;
  if (team.rank == 0) {
    set_padding(it, it.Z, 0);
    const float largest = spectrum_bound(it, it.Z);
    scale_and_shift(it, it.Z, it.Y, 1 / largest, 0);
    set_padding(it, it.Y, 1);
    *bound = largest;
  }
  team.wait();
  const float factor = sqrtf(*bound);
  iterate(it, options.second_stage, Limit::root, team);
  root = it.Y;
  return factor;
}

void root_of_one(const RootItem& item, const RootOptions& options, float* memory, Team team) {
  if (item.n <= MAX_TINY) {
    if (team.rank == 0) root_of_tiny(item, options, SAFETY);
    return;
  }
  Iteration it(item.n, memory);
  float* const shared = it.sums;
  if (team.rank == 0) {
    float unit;
    float bound = normalize(it, item.A, options, unit);
    if (bound < 0) bound = NAN;
    const int shorter = bound > 0 ? shortest_schedule(it, options, item.most_steps) : 0;
    if (bound > 0 && schedule_for(options, shorter).steps > item.most_steps) bound = -bound;
    shared[0] = bound;
    shared[1] = unit;
    shared[2] = shorter;
    *item.bound = bound * unit;
    if (!(bound != 0 && isfinite(bound))) fill(item.out, item.n * item.n, bound == 0 ? 0 : NAN);
  }
  team.wait();
  const float bound = shared[0], unit = shared[1];
  const int shorter = static_cast<int>(shared[2]);
  team.wait();
  if (!(bound > 0)) return;
  float* root;
  const float factor = take_root(it, schedule_for(options, shorter), options, root, team);
  const double power = pow(static_cast<double>(bound) * unit, -1.0 / options.p);
  store_result(it, root, item.out, static_cast<float>(factor * power), team);
}

// The normalized matrix, rows one after another, for what else is to be done with it.
void normalize_one(const RootItem& item, const RootOptions& options, float* memory, Team team) {
  if (team.rank != 0) return;
  const Iteration it(item.n, memory);
  float unit;
  const float bound = normalize(it, item.A, options, unit);
  *item.bound = bound * unit;
  if (bound > 0)
    store_result(it, it.Y, item.out, 1, Team{});
  else
    fill(item.out, item.n * item.n, bound == 0 ? 0 : NAN);
}

int64_t largest_workspace(const RootItem* items, int64_t count) {
  int64_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = items[i].n > largest ? items[i].n : largest;
  return Iteration::floats(largest);
}

}  // namespace

void normalize(const RootItem* items, int64_t count, const RootOptions& options, int threads) {
  for_each_item(count, largest_workspace(items, count), threads, [=](int64_t i, float* memory, Team team) {
    normalize_one(items[i], options, memory, team);
  });
}

void inverse_root(const RootItem* items, int64_t count, const RootOptions& options, int threads) {
  for_each_item(count, largest_workspace(items, count), threads, [=](int64_t i, float* memory, Team team) {
    root_of_one(items[i], options, memory, team);
  });
}

}  // namespace kpop::cpu::KPOP_ISA
