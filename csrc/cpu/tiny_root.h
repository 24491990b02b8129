// Inverse roots of matrices of order 1 to 3, in double. The iteration has few roundings there to average over, so that
// float would lose several times more than it does at larger orders; in double all it costs is about a microsecond.
#pragma once
#include <float.h>
#include <math.h>

#include "kernels.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

constexpr int64_t MAX_TINY = 3;

struct TinyMatrix {
  double at[MAX_TINY][MAX_TINY];
};

inline TinyMatrix tiny_product(int n, const TinyMatrix& A, const TinyMatrix& B) {
  TinyMatrix product{};
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) product.at[i][j] += A.at[i][k] * B.at[k][j];
  return product;
}

// a X + b times the symmetric part of AB.
inline TinyMatrix tiny_update(int n, const TinyMatrix& A, const TinyMatrix& B, const TinyMatrix& X, double a,
                              double b) {
  const TinyMatrix product = tiny_product(n, A, B);
  TinyMatrix result{};
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      result.at[i][j] = a * X.at[i][j] + b * (0.5 * product.at[i][j] + 0.5 * product.at[j][i]);
  return result;
}

// matrix <- factor matrix + shift I
inline void tiny_scale(int n, TinyMatrix& matrix, double factor, double shift) {
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) matrix.at[i][j] *= factor;
    matrix.at[i][i] += shift;
  }
}

// The smaller of the Wolkowicz–Styan and the Collatz–Wielandt bound, with a margin.
inline double tiny_bound(int n, const TinyMatrix& matrix, double safety) {
  double mean = 0, rms = 0, sums[MAX_TINY] = {}, collatz_wielandt = 0;
  for (int i = 0; i < n; ++i) {
    mean += matrix.at[i][i] / n;
    for (int j = 0; j < n; ++j) {
      sums[i] += fabs(matrix.at[i][j]);
      rms += matrix.at[i][j] * matrix.at[i][j] / n;
    }
    sums[i] = fmax(sums[i], FLT_MIN);
  }
  rms = sqrt(rms);
  for (int i = 0; i < n; ++i) {
    double sum = 0;
    for (int j = 0; j < n; ++j) sum += fabs(matrix.at[i][j]) * sums[j];
    collatz_wielandt = fmax(collatz_wielandt, sum / sums[i]);
  }
  return safety * fmin(mean + sqrt(fmax((rms - mean) * (rms + mean), 0) * (n - 1)), collatz_wielandt);
}

// Takes Y to Y^(1/2) and returns Y^(-1/2).
inline TinyMatrix tiny_iterate(int n, TinyMatrix& Y, const Schedule& schedule) {
  TinyMatrix Z{};
  tiny_scale(n, Z, 0, 1);
  for (int step = 0; step < schedule.steps; ++step) {
    const double a = schedule.coefficients[2 * step], b = schedule.coefficients[2 * step + 1];
    const TinyMatrix P = tiny_product(n, Z, Y);
    Y = tiny_update(n, Y, P, Y, a, b);
    Z = tiny_update(n, P, Z, Z, a, b);
  }
  return Z;
}

inline void root_of_tiny(const RootItem& item, const RootOptions& options, double safety) {
  const int n = static_cast<int>(item.n);
  TinyMatrix Y{};
  double poison = 0;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      Y.at[i][j] = 0.5 * item.A[i * n + j] + 0.5 * item.A[j * n + i];
      poison += 0 * Y.at[i][j];
    }
  double bound = tiny_bound(n, Y, safety);
  const double delta = options.damping + options.relative_damping * bound;
  bound += safety * delta + poison;
  *item.bound = static_cast<float>(bound);
  if (!(bound > 0)) {
    for (int i = 0; i < n * n; ++i) item.out[i] = bound == 0 ? 0 : NAN;
    return;
  }
  tiny_scale(n, Y, 1 / bound, delta / bound);
  TinyMatrix root = tiny_iterate(n, Y, options.schedule);
  double scale = pow(bound, -1.0 / options.p);
  if (options.p == 1) root = tiny_update(n, root, root, root, 0, 1);
  if (options.p == 4) {
    const double largest = tiny_bound(n, root, safety);
    tiny_scale(n, root, 1 / largest, 0);
    tiny_iterate(n, root, options.second_stage);
    scale *= sqrt(largest);
  }
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) item.out[i * n + j] = static_cast<float>(scale * root.at[i][j]);
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
