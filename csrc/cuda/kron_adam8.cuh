// Adam in a rotated basis with both moments in 8-bit blocks, for matrices with sides up to N that are whole blocks or
// alone, one thread block a matrix: the products of kron_adam, between them the averages of ema8 on the rotated gradient
// in shared memory, bit for bit. Bytes moved for an element: 2 in and 2 out for the moments, twice the parameter and once
// the gradient as wide as they are, twice 9 for each block; 8 more, which the L2 cache holds, and the gradient again
// where the first moment is kept in its basis.
#pragma once

#include "kron_adam.cuh"
#include "moments.cuh"

namespace kpop {

constexpr int LARGEST_LIST8 = 128;  // as many items as fit beside the other parameters of a kernel

struct KronAdam8Item {
  BlockItem blocks;
  float* scratch;  // an entry for each of the parameter where the first moment is in the basis of the gradient
  Matrices matrices;
  Scalar<int64_t> step;
  const float* found_inf;
  int first_block;
  bool aligned;  // whether all arrays can be moved in pieces of 16 bytes
};

// A kernel parameter.
struct KronAdam8Arguments {
  KronAdam8Item item[LARGEST_LIST8];
  int items;
  bool original;
  AdamSettings settings;
  const DynamicMap* map;
  PhiloxKeys keys;
  Tiling tiling;  // of warps
  int block_size;
};

// What is computed once for a matrix, in shared memory, from its first element on.
struct KronAdam8Matrix {
  Part part;
  AdamStep step;
  BlockItem blocks;
  float* scratch;
  Tiling tiling;
  RandomSource random;
};

static_assert(SHARED_MATRIX<cuda::LARGEST_ORDER> + sizeof(DynamicTables) + sizeof(KronAdam8Matrix) <= 98 * 1024,
              "what a thread block shares fits, and 1 KiB that devices keep for themselves");

__device__ __forceinline__ KronAdam8Matrix matrix_of(const KronAdam8Arguments& arguments, const KronAdam8Item& item,
                                                     const Part& part) {
  const int64_t step = item.step.value(), elements = part.offset, blocks = elements / arguments.block_size;
  BlockItem own = item.blocks;
  own.affine = {own.affine.codes + elements, own.affine.scales + blocks, own.affine.zero_points + blocks};
  own.dynamic = {own.dynamic.codes + elements, own.dynamic.absmax + blocks};
  Tiling tiling = arguments.tiling;
  tiling.count = part.rows * part.columns;
  tiling.aligned = item.aligned;
  const uint64_t offset = own.offset + static_cast<uint64_t>(elements);
  return {part,   adam_step(arguments.settings, step), own, item.scratch + elements,
          tiling, {arguments.keys, own.stream, {nullptr, step}, offset}};
}

// Calls f(i, entry of S) for what a row's group has of a matrix whose rows follow each other.
template <int N, typename Function>
__device__ __forceinline__ void each_of_group(float* S, int columns, const Tile& tile, int row, Function f) {
  const int first = unknown(static_cast<int>(tile.first(row)));
  int y = first / columns, x = first % columns;
#pragma unroll
  for (int i = 0; i < GROUP; ++i) {
    if (tile.holds(row, i)) f(i, S[shared_index<N>(y, x)]);
    if (++x < columns) continue;
    x = 0;
    ++y;
  }
}

// What a thread block does in turn. A first moment in the basis of the gradient is averaged in a turn of its own.
enum Turn8 { ROTATE_GRADIENT, AVERAGE_GRADIENT, ROTATE_MOMENT, ROTATE_UPDATE };

// Averages what is in S into the moments of a tile, one after the other: registers are scarce. S <- the normalized first
// moment, or the first moment alone where it has a turn of its own.
template <int N>
__device__ __forceinline__ void average_tile(float* S, int turn, const KronAdam8Matrix& matrix, const Tile& tile,
                                             const DynamicTables& tables, const Random& random,
                                             const KronAdam8Arguments& arguments) {
  const AdamSettings& settings = arguments.settings;
  const int columns = matrix.part.columns;
  float v[ROWS][GROUP] = {}, x[ROWS][GROUP] = {};
#pragma unroll
  for (int row = 0; row < ROWS; ++row)
    each_of_group<N>(S, columns, tile, row, [&](int i, float entry) { x[row][i] = entry; });
  if (turn == ROTATE_GRADIENT) {
    restore_dynamic(v, matrix.blocks.dynamic, tables.values, tile);
    average_square(v, x, settings.decay2);
    quantize_dynamic<false>(v, tile, tables.buckets, matrix.blocks.dynamic);
    if (arguments.original) return store_tile(v, matrix.scratch, tile);
  }
  float m[ROWS][GROUP];
  restore_affine(m, matrix.blocks.affine, tile);
  average(m, x, settings.decay1);
#pragma unroll
  for (int row = 0; row < ROWS; ++row)
    each_of_group<N>(S, columns, tile, row, [&](int i, float& entry) {
      entry = arguments.original ? m[row][i] : normalized(m[row][i], v[row][i], matrix.step, settings);
    });
  quantize_affine<true>(m, tile, UNBIASED_RULE, random, matrix.blocks.affine);
}

template <int N>
__device__ __forceinline__ void average_moments(float* S, int turn, const KronAdam8Matrix& matrix,
                                                const DynamicTables& tables, const Place& place,
                                                const KronAdam8Arguments& arguments) {
  Tiling tiling = matrix.tiling;
  tiling.team = WARP;  // known to the compiler: no barriers
  const Random random(matrix.random);
#pragma unroll 1
  for (int number = place.warp;; number += N / 16) {
    const Tile tile(tiling, number);
    if (tile.beyond()) return;
    average_tile<N>(S, turn, matrix, tile, tables, random, arguments);
  }
}

// S <- the rotated first moment, normalized.
template <int N>
__device__ __forceinline__ void normalize(float* S, const KronAdam8Matrix& matrix, const Place& place,
                                          const AdamSettings& settings) {
  const Part& part = matrix.part;
  each_batch<N>(part.rows, part.columns, place, [&](const Batch<N>& batch) {
    float second[BATCH] = {};
    batch.each([&](int k, int row, int column) { second[k] = matrix.scratch[row * part.stride + column]; });
    batch.each([&](int k, int row, int column) {
      float& value = S[shared_index<N>(row, column)];
      value = normalized(value, second[k], matrix.step, settings);
    });
  });
}

template <int N>
__global__ void __launch_bounds__(2 * N, 1) kron_adam8(const __grid_constant__ KronAdam8Arguments arguments) {
  KPOP_DYNAMIC_SHARED(float, S);
  __shared__ DynamicTables tables;
  __shared__ KronAdam8Matrix matrix;
  const int block = static_cast<int>(blockIdx.x);
  const KronAdam8Item& item = item_of(arguments.item, arguments.items, block);
  if (item.found_inf && *item.found_inf != 0.0f) return;
  copy_table(tables.values, arguments.map->values, 2 * N);
  copy_table(tables.buckets, arguments.map->buckets, 2 * N);
  if (threadIdx.x == 0) matrix = matrix_of(arguments, item, part_of<N>(item.matrices, block - item.first_block));
  __syncthreads();
  const Place place;
#pragma unroll 1
  for (int turn = ROTATE_GRADIENT; turn <= ROTATE_UPDATE; ++turn) {
    const bool loads = turn <= AVERAGE_GRADIENT;
    if (!arguments.original && (turn == AVERAGE_GRADIENT || turn == ROTATE_MOMENT)) continue;
    if (turn == AVERAGE_GRADIENT) __syncthreads();  // S has been read
    if (loads) load_part<N>(S, item.blocks.x, arguments.settings.maximize, matrix.part, place);
    __syncthreads();
    if (turn != AVERAGE_GRADIENT) rotate<N>(S, matrix.part, turn == ROTATE_UPDATE, place);
    if (loads) average_moments<N>(S, turn, matrix, tables, place, arguments);
    if (turn == ROTATE_MOMENT) normalize<N>(S, matrix, place, arguments.settings);
  }
  update_part<N>(S, item.blocks.out, matrix.part, place, matrix.step);
}

}  // namespace kpop
