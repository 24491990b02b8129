// S <- beta S + alpha P with an exactly symmetric result, tile by tile: a tile of the lower triangle is computed in
// registers, stored, and its transpose stored at the mirrored place, so that S is touched once.
#include "kernels.h"
#include "parallel.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

constexpr int64_t TILE = 32;

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

void update_tile(float* S, int64_t stride, const float* P, int64_t n, int64_t row, int64_t col, float beta,
                 float alpha) {
  float tile[TILE][TILE];
  const int64_t rows = smaller(TILE, n - row);
  const int64_t cols = smaller(TILE, n - col);
  for (int64_t i = 0; i < rows; ++i) {
    const float* s = S + (row + i) * stride + col;
    const float* p = P + (row + i) * n + col;
    for (int64_t j = 0; j < cols; ++j) tile[i][j] = beta * s[j] + alpha * p[j];
  }
  if (row == col) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = i + 1; j < cols; ++j) tile[i][j] = tile[j][i];
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) S[(row + i) * stride + col + j] = tile[i][j];
  if (row != col) {
    for (int64_t j = 0; j < cols; ++j)
      for (int64_t i = 0; i < rows; ++i) S[(col + j) * stride + row + i] = tile[i][j];
  }
}

}  // namespace

void symmetric_ema(float* S, int64_t batch_stride, int64_t row_stride, const float* P, int64_t batch, int64_t n,
                   float beta, float alpha, int threads) {
  const int64_t tiles = (n + TILE - 1) / TILE;
  parallel_for(batch * tiles, 1, threads, [=](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t item = part / tiles;
      const int64_t row = part % tiles * TILE;
      for (int64_t col = 0; col <= row; col += TILE)
        update_tile(S + item * batch_stride, row_stride, P + item * n * n, n, row, col, beta, alpha);
    }
  });
}

}  // namespace kpop::cpu::KPOP_ISA
