// How threads share out the blocks of a tensor. A thread holds ROWS groups of 8 neighbouring elements, and a team
// of threads holds a tile, which is whole blocks:
//
//            thread 0    1       2     ...
//   row 0  [ 8 el. | 8 el. | 8 el. | ... ]
//   row 1  [ 8 el. | ...                 ]        block size          team           blocks of a tile
//     ...                                         8, 16, ..., 256     warp           1024 / block size
//   row 3  [                     ... 8 el. ]      others up to 1024   warp           1
//                                                 others up to 4096   thread block   1
#pragma once

#include <cuda_runtime.h>

#include "../common/blocks.h"

namespace kpop {

constexpr int GROUP = 8;  // elements that share a call of Philox
constexpr int ROWS = 4;
constexpr int WARP = 32;
constexpr int THREADS = 128;
constexpr int WARPS = THREADS / WARP;
constexpr unsigned ALL_LANES = 0xFFFFFFFF;

constexpr int WARP_ROW = WARP * GROUP;
constexpr int WARP_TILE = WARP_ROW * ROWS;
static_assert(THREADS * GROUP * ROWS == LARGEST_BLOCK, "a thread block holds the largest block");

// A kernel parameter.
struct Tiling {
  int64_t count;   // elements of the tensor
  int32_t size;    // elements of a tile
  int32_t team;    // threads of a team: WARP or THREADS
  int32_t lanes;   // neighbouring lanes that share a block, in each row by itself; 0 where a tile is one block
  int32_t shift;   // logarithm of the block size, where `lanes` is not 0
  bool aligned;    // every array of elements begins at a multiple of 16 bytes

  // The thread blocks that hold all tiles at once.
  int64_t grid() const {
    const int64_t elements = int64_t{size} * (THREADS / team);
    return (count + elements - 1) / elements;
  }
};

inline Tiling tiling_of(Blocks blocks, bool aligned) {
  const auto block_size = static_cast<int32_t>(blocks.block_size);
  const bool rows_hold_blocks = block_size <= WARP_ROW && (block_size & (block_size - 1)) == 0;
  if (!rows_hold_blocks)
    return {blocks.count, block_size, block_size <= WARP_TILE ? WARP : THREADS, 0, 0, aligned};
  int32_t shift = 0;
  while (1 << shift < block_size) ++shift;
  return {blocks.count, WARP_TILE, WARP, block_size / GROUP, shift, aligned};
}

// The largest of the warps' values, in every thread of the block.
__device__ __forceinline__ uint32_t max_over_warps(uint32_t value) {
  __shared__ uint32_t warp_max[WARPS];
  __syncthreads();  // the values of the call before have been read
  if (threadIdx.x % WARP == 0) warp_max[threadIdx.x / WARP] = value;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) value = max(value, warp_max[warp]);
  return value;
}

// One tile, as the calling thread sees it.
class Tile {
 public:
  __device__ __forceinline__ Tile(const Tiling& tiling, int64_t number)
      : tiling_(tiling), number_(number), place_((static_cast<int>(threadIdx.x) & (tiling.team - 1)) * GROUP) {}

  // The number of the team's first tile, and how far it is to its next one.
  static __device__ __forceinline__ int64_t first_number(const Tiling& tiling) {
    return tiling.team == WARP ? int64_t{blockIdx.x} * WARPS + threadIdx.x / WARP : int64_t{blockIdx.x};
  }
  static __device__ __forceinline__ int64_t stride(const Tiling& tiling) {
    return int64_t{gridDim.x} * (tiling.team == WARP ? WARPS : 1);
  }

  // Whether the tensor ends before the tile begins, which all threads of the team find alike.
  __device__ __forceinline__ bool beyond() const { return number_ * tiling_.size >= tiling_.count; }

  // The first element of the thread's group in a row.
  __device__ __forceinline__ int64_t first(int row) const { return number_ * tiling_.size + local(row); }

  // Whether the row's group belongs to the tile, if not to the tensor.
  __device__ __forceinline__ bool holds(int row) const { return local(row) < tiling_.size; }

  // Whether element `i` of the row's group is an element of the tensor.
  __device__ __forceinline__ bool holds(int row, int i) const {
    return holds(row) && first(row) + i < tiling_.count;
  }

  // Whether all groups of the tile are whole and can be moved in pieces of 16 bytes.
  __device__ __forceinline__ bool whole() const {
    return tiling_.aligned && (number_ + 1) * tiling_.size <= tiling_.count;
  }

  // The number of the block that a row's group is part of, and whether this thread is its first.
  __device__ __forceinline__ int64_t block(int row) const {
    return tiling_.lanes ? first(row) >> tiling_.shift : number_;
  }
  __device__ __forceinline__ bool begins_block(int row) const {
    const bool begins = tiling_.lanes ? (first(row) & ((int64_t{1} << tiling_.shift) - 1)) == 0 : local(row) == 0;
    return begins && first(row) < tiling_.count;
  }

  // Replaces the maximum of each row's group by that of its block. Called by all threads of the team.
  __device__ __forceinline__ void max_over_blocks(uint32_t (&peaks)[ROWS]) const {
    if (tiling_.lanes == WARP) {
#pragma unroll
      for (int row = 0; row < ROWS; ++row) peaks[row] = __reduce_max_sync(ALL_LANES, peaks[row]);
      return;
    }
    if (tiling_.lanes) {
      for (int offset = tiling_.lanes / 2; offset > 0; offset /= 2)
#pragma unroll
        for (int row = 0; row < ROWS; ++row)
          peaks[row] = max(peaks[row], __shfl_xor_sync(ALL_LANES, peaks[row], offset));
      return;
    }
    uint32_t peak = max(max(peaks[0], peaks[1]), max(peaks[2], peaks[3]));
    peak = __reduce_max_sync(ALL_LANES, peak);
    if (tiling_.team != WARP) peak = max_over_warps(peak);
#pragma unroll
    for (int row = 0; row < ROWS; ++row) peaks[row] = peak;
  }

 private:
  __device__ __forceinline__ int local(int row) const { return row * tiling_.team * GROUP + place_; }

  const Tiling& tiling_;
  int64_t number_;
  int place_;
};

}  // namespace kpop
