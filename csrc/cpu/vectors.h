// Tiles of floats in registers, for whatever vector width the instruction set has. Included by files that are
// compiled once for each instruction set: everything here has internal linkage.
#pragma once
#include <cstdint>

namespace kpop::cpu::KPOP_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int TILE = 16;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr int TILE = 8;
#else
constexpr int TILE = 4;
#endif

// One row of a tile. On AArch64 it is a pair of registers.
typedef float Row __attribute__((vector_size(TILE * sizeof(float))));
typedef float UnalignedRow __attribute__((vector_size(TILE * sizeof(float)), aligned(4), may_alias));

typedef int32_t RowMask __attribute__((vector_size(TILE * sizeof(int32_t))));

#define KPOP_INLINE inline __attribute__((always_inline))

KPOP_INLINE Row load(const float* p) { return *reinterpret_cast<const UnalignedRow*>(p); }
KPOP_INLINE void store(float* p, Row row) { *reinterpret_cast<UnalignedRow*>(p) = row; }
KPOP_INLINE Row magnitude(Row x) { return x < 0.0f ? -x : x; }

// A square tile, small enough to stay in registers.
struct Tile {
  Row row[TILE];
};

template <int... J>
struct Lanes {};
template <int N, int... J>
struct MakeLanes : MakeLanes<N - 1, N - 1, J...> {};
template <int... J>
struct MakeLanes<0, J...> {
  using type = Lanes<J...>;
};
using AllLanes = MakeLanes<TILE>::type;

// Lane j of the result is lane Index(j) of the concatenation of a and b.
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define KPOP_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
#endif
#ifndef KPOP_SHUFFLE
#define KPOP_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, RowMask{__VA_ARGS__})
#endif

// Exchanges the off-diagonal DISTANCE x DISTANCE blocks of rows a and b (b lies DISTANCE rows below a).
template <int DISTANCE, int... J>
KPOP_INLINE void exchange(Row& a, Row& b, Lanes<J...>) {
  const Row upper = KPOP_SHUFFLE(a, b, ((J & DISTANCE) ? TILE + J - DISTANCE : J)...);
  b = KPOP_SHUFFLE(a, b, ((J & DISTANCE) ? TILE + J : J + DISTANCE)...);
  a = upper;
}

template <int DISTANCE>
KPOP_INLINE void transpose_blocks(Tile& t) {
#pragma GCC unroll 16
  for (int i = 0; i < TILE; ++i)
    if (!(i & DISTANCE)) exchange<DISTANCE>(t.row[i], t.row[i + DISTANCE], AllLanes());
  if constexpr (DISTANCE > 1) transpose_blocks<DISTANCE / 2>(t);
}

KPOP_INLINE Tile transposed(Tile t) {
  transpose_blocks<TILE / 2>(t);
  return t;
}

template <int... J>
KPOP_INLINE RowMask lane_numbers(Lanes<J...>) {
  return RowMask{J...};
}

// The tile's lower triangle with its mirror image above the diagonal.
KPOP_INLINE Tile mirrored(const Tile& t) {
  const Tile upper = transposed(t);
  const RowMask lane = lane_numbers(AllLanes());
  Tile result;
#pragma GCC unroll 16
  for (int i = 0; i < TILE; ++i) result.row[i] = lane <= i ? t.row[i] : upper.row[i];
  return result;
}

KPOP_INLINE Tile load_tile(const float* p, int64_t stride) {
  Tile t;
#pragma GCC unroll 16
  for (int i = 0; i < TILE; ++i) t.row[i] = load(p + i * stride);
  return t;
}

KPOP_INLINE void store_tile(float* p, int64_t stride, const Tile& t) {
#pragma GCC unroll 16
  for (int i = 0; i < TILE; ++i) store(p + i * stride, t.row[i]);
}

// The part of a tile that lies inside a matrix; what lies outside reads as zero and is not written.
KPOP_INLINE Tile load_part(const float* p, int64_t stride, int64_t rows, int64_t cols) {
  if (rows >= TILE && cols >= TILE) return load_tile(p, stride);
  float buffer[TILE * TILE] = {};
  for (int64_t i = 0; i < rows && i < TILE; ++i)
    for (int64_t j = 0; j < cols && j < TILE; ++j) buffer[i * TILE + j] = p[i * stride + j];
  return load_tile(buffer, TILE);
}

KPOP_INLINE void store_part(float* p, int64_t stride, int64_t rows, int64_t cols, const Tile& t) {
  if (rows >= TILE && cols >= TILE) return store_tile(p, stride, t);
  float buffer[TILE * TILE];
  store_tile(buffer, TILE, t);
  for (int64_t i = 0; i < rows && i < TILE; ++i)
    for (int64_t j = 0; j < cols && j < TILE; ++j) p[i * stride + j] = buffer[i * TILE + j];
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
