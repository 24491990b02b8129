// 8-bit blocks on the affine grid. Bytes moved for an element: 5 from or to float32, 3 from or to a 16-bit type, and 5
// for each block.
#pragma once

#include "affine.cuh"
#include "list.cuh"

namespace kpop {

// Whole warp tiles of blocks of 256 whose random numbers begin with a call of Philox and whose arrays begin at
// multiples of 16 bytes: each row is a block. All loads come first, and the four grids of a warp are computed at once,
// each by the lanes that share its remainder. Bound by memory from float32, by instructions from 16-bit types.
template <typename T, bool STOCHASTIC>
__global__ void __launch_bounds__(THREADS)
    quantize_int8_by_256(const T* __restrict__ x, uint8_t* __restrict__ codes, float* __restrict__ scales,
                         uint8_t* __restrict__ zero_points, int64_t tiles, AffineRule rule, RandomSource source) {
  const int64_t tile = int64_t{blockIdx.x} * WARPS + threadIdx.x / WARP;
  if (tile >= tiles) return;
  const int lane = threadIdx.x % WARP;
  const int64_t first = tile * WARP_TILE + lane * GROUP;

  Group<T> groups[ROWS];
#pragma unroll
  for (int row = 0; row < ROWS; ++row) groups[row].load(x + first + row * WARP_ROW);
  float values[ROWS][GROUP];
  Ends mine = {0, 0};
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    groups[row].widen_to(values[row]);
    const Ends ends = ends_of(values[row]);
    const Ends all = {__reduce_max_sync(ALL_LANES, ends.hi), __reduce_max_sync(ALL_LANES, ends.lo)};
    if (lane % ROWS == row) mine = all;
  }
  const AffineGrid grid = grid_between(mine, rule);
  if (lane < ROWS) {
    scales[tile * ROWS + lane] = grid.scale;
    zero_points[tile * ROWS + lane] = static_cast<uint8_t>(grid.zero_point);
  }

  const Random random(source);
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    const float inverse = __shfl_sync(ALL_LANES, grid.inverse, row);
    const int zero_point = __shfl_sync(ALL_LANES, grid.zero_point, row);
    const int64_t begin = first + row * WARP_ROW;
    const Philox4 words = STOCHASTIC ? random.of_call(begin) : Philox4{};
    *reinterpret_cast<Codes*>(codes + begin) = encode_affine<STOCHASTIC>(values[row], inverse, zero_point, words);
  }
}

template <bool STOCHASTIC>
__device__ __forceinline__ void quantize_tile(const Tile& tile, Values x, AffineRule rule, const Random& random,
                                              AffineCodes out) {
  if (tile.beyond()) return;
  float values[ROWS][GROUP];
  load_tile(values, x, tile);
  quantize_affine<STOCHASTIC>(values, tile, rule, random, out);
}

// Any block size, length, address and offset.
template <bool STOCHASTIC>
__global__ void __launch_bounds__(THREADS)
    quantize_int8(Values x, AffineCodes out, Tiling tiling, AffineRule rule, RandomSource source) {
  quantize_tile<STOCHASTIC>(Tile(tiling, Tile::first_number(tiling)), x, rule, Random(source), out);
}

template <bool STOCHASTIC>
__global__ void __launch_bounds__(THREADS)
    list_quantize_int8(const __grid_constant__ List list, Tiling tiling, AffineRule rule, RandomSource source) {
  const int64_t number = Tile::first_number(tiling);
  const int i = item_at(list, number);
  const Tiling own = tiling_at(list, tiling, i);
  const Tile tile(own, number - list.first_tile[i]);
  quantize_tile<STOCHASTIC>(tile, list.items[i].x, rule, random_at(list, source, i), list.items[i].affine);
}

__device__ __forceinline__ void dequantize_tile(const Tile& tile, AffineCodes in, MutableValues out) {
  if (tile.beyond()) return;
  float values[ROWS][GROUP];
  restore_affine(values, in, tile);
  store_tile(values, out, tile);
}

__global__ void __launch_bounds__(THREADS) dequantize_int8(AffineCodes in, MutableValues out, Tiling tiling) {
  dequantize_tile(Tile(tiling, Tile::first_number(tiling)), in, out);
}

__global__ void __launch_bounds__(THREADS) list_dequantize_int8(const __grid_constant__ List list, Tiling tiling) {
  const int64_t number = Tile::first_number(tiling);
  const int i = item_at(list, number);
  const Tiling own = tiling_at(list, tiling, i);
  dequantize_tile(Tile(own, number - list.first_tile[i]), list.items[i].affine, list.items[i].out);
}

}  // namespace kpop
