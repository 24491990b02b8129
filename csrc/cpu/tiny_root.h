// Inverse roots of matrices up to order 8, in double. The iteration has few roundings there to average over, so that
// float would lose several times more than it does at larger orders; in double it costs the same as a tile of floats.
#pragma once
#include <float.h>
#include <math.h>

#include "kernels.h"
#include "vectors.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

constexpr int64_t MAX_TINY = 8;

// A matrix of order up to N, zero beyond its own.
template <int N>
struct TinyMatrix {
  typedef double Line __attribute__((vector_size(N * sizeof(double))));
  Line row[N];
};

template <int N>
KPOP_INLINE TinyMatrix<N> tiny_product(const TinyMatrix<N>& A, const TinyMatrix<N>& B) {
  TinyMatrix<N> product{};
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i)
#pragma GCC unroll 8
    for (int k = 0; k < N; ++k) product.row[i] += A.row[i][k] * B.row[k];
  return product;
}

template <int N>
KPOP_INLINE TinyMatrix<N> symmetric_part(const TinyMatrix<N>& A) {
  TinyMatrix<N> result;
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) result.row[i][j] = 0.5 * A.row[i][j] + 0.5 * A.row[j][i];
  return result;
}

// a X + b times the symmetric part of AB.
template <int N>
KPOP_INLINE TinyMatrix<N> tiny_update(const TinyMatrix<N>& A, const TinyMatrix<N>& B, const TinyMatrix<N>& X, double a,
                                      double b) {
  TinyMatrix<N> result = symmetric_part(tiny_product(A, B));
  for (int i = 0; i < N; ++i) result.row[i] = a * X.row[i] + b * result.row[i];
  return result;
}

// matrix <- factor matrix + shift I
template <int N>
KPOP_INLINE void tiny_scale(TinyMatrix<N>& matrix, double factor, double shift) {
  for (int i = 0; i < N; ++i) {
    matrix.row[i] *= factor;
    matrix.row[i][i] += shift;
  }
}

// The smaller of the Wolkowicz–Styan and the Collatz–Wielandt bound, with a margin.
template <int N>
inline double tiny_bound(int n, const TinyMatrix<N>& matrix, double safety) {
  double mean = 0, rms = 0, sums[N] = {}, collatz_wielandt = 0;
  for (int i = 0; i < n; ++i) {
    mean += matrix.row[i][i] / n;
    for (int j = 0; j < n; ++j) {
      sums[i] += fabs(matrix.row[i][j]);
      rms += matrix.row[i][j] * matrix.row[i][j] / n;
    }
    sums[i] = fmax(sums[i], FLT_MIN);
  }
  rms = sqrt(rms);
  for (int i = 0; i < n; ++i) {
    double sum = 0;
    for (int j = 0; j < n; ++j) sum += fabs(matrix.row[i][j]) * sums[j];
    collatz_wielandt = fmax(collatz_wielandt, sum / sums[i]);
  }
  return safety * fmin(mean + sqrt(fmax((rms - mean) * (rms + mean), 0) * (n - 1)), collatz_wielandt);
}

// Takes Y to Y^(1/2) and returns Y^(-1/2).
template <int N>
inline TinyMatrix<N> tiny_iterate(TinyMatrix<N>& Y, const Schedule& schedule) {
  TinyMatrix<N> Z{};
  tiny_scale(Z, 0, 1);
  for (int step = 0; step < schedule.steps; ++step) {
    const double a = schedule.coefficients[2 * step], b = schedule.coefficients[2 * step + 1];
    const TinyMatrix<N> P = tiny_product(Z, Y);
    Y = tiny_update(Y, P, Y, a, b);
    Z = tiny_update(P, Z, Z, a, b);
  }
  return Z;
}

template <int N>
inline void root_of_tiny(const RootItem& item, const RootOptions& options, double safety) {
  const int n = static_cast<int>(item.n);
  TinyMatrix<N> Y{};
  double poison = 0;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      Y.row[i][j] = item.A[i * n + j];
      poison += 0 * Y.row[i][j];
    }
  Y = symmetric_part(Y);
  double bound = tiny_bound(n, Y, safety);
  const double delta = options.damping + options.relative_damping * bound;
  bound += safety * delta + poison;
  *item.bound = static_cast<float>(bound);
  if (!(bound > 0)) {
    for (int i = 0; i < n * n; ++i) item.out[i] = bound == 0 ? 0 : NAN;
    return;
  }
  tiny_scale(Y, 1 / bound, 0);
  for (int i = 0; i < n; ++i) Y.row[i][i] += delta / bound;
  TinyMatrix<N> root = tiny_iterate(Y, options.schedule);
  double scale = pow(bound, -1.0 / options.p);
  if (options.p == 1) root = tiny_update(root, root, root, 0, 1);
  if (options.p == 4) {
    // Beyond its order the root is a multiple of the identity, as large as it can be.
    for (int i = n; i < N; ++i) root.row[i] *= 0.0;
    const double largest = tiny_bound(n, root, safety);
    tiny_scale(root, 1 / largest, 0);
    tiny_iterate(root, options.second_stage);
    scale *= sqrt(largest);
  }
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) item.out[i * n + j] = static_cast<float>(scale * root.row[i][j]);
}

inline void root_of_tiny(const RootItem& item, const RootOptions& options, double safety) {
  item.n <= 4 ? root_of_tiny<4>(item, options, safety) : root_of_tiny<8>(item, options, safety);
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
