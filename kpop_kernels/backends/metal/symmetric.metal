// out = alpha A B + beta C for products known to be symmetric: tiles of the lower triangle, each stored twice.
//
// Of C the lower triangle is read, each element once, by the thread that then writes the same place of `out`:
// they may be the same memory. Elements moved besides the factors: n^2 / 2 of C in, n^2 out.
#include "product.metal"

// Tile `index` of a batch, of `tiles` a side. The triangle is folded to a rectangle: what lies left of the
// diagonal comes from the other end.
static inline Tile tile_of_triangle(ulong index, uint tiles) {
  const ulong in_item = ulong(tiles) * (tiles + 1u) / 2u;
  Tile tile;
  tile.item = index / in_item;
  const uint odd = tiles & 1u, width = tiles + 1u - odd;
  const uint place = uint(index - tile.item * in_item);
  const uint y = place / width, x = place - y * width;
  const bool folded = x + odd <= y;
  tile.row = (folded ? tiles - 1u - x : x - (1u - odd)) * kTile;
  tile.col = (folded ? tiles - 1u + odd - y : y) * kTile;
  return tile;
}

// 32 rows of a tile: where element (0, 0) lies in an n x n matrix.
struct Place {
  uint row, col, n;
};

// Turns a thread's sums into results, in the lower triangle of `out` and staged for the other threads.
template <typename T>
static inline void finish(thread const float* sums, threadgroup float* staged, device const float* C,
                          device T* out, Place place, float alpha, float beta, uint thread_id) {
  UNROLL for (uint q = 0u; q < kOwned; ++q) {
    const uint e = thread_id + q * kThreads;
    const uint r = e / kTile, c = e % kTile, i = place.row + r, j = place.col + c;
    if (i >= place.n || j > i) continue;
    const ulong at = ulong(i) * place.n + j;
    float value = alpha * sums[q];
    if (beta != 0.0f) value = fma(beta, C[at], value);
    staged[r * kRightStride + c] = value;
    store(out, at, float_bits(value));
  }
}

// Stores the staged results once more, mirrored: neighbouring threads take neighbouring rows.
template <typename T>
static inline void mirror(const threadgroup float* staged, device T* out, Place place, uint thread_id) {
  for (uint e = thread_id; e < kHalf * kTile; e += kThreads) {
    const uint r = e % kHalf, c = e / kHalf, i = place.row + r, j = place.col + c;
    if (i >= place.n || j >= i) continue;
    store(out, ulong(j) * place.n + i, float_bits(staged[r * kRightStride + c]));
  }
}

// prm: see product.metal. weights: alpha, beta.
template <typename X, typename S>
[[max_total_threads_per_threadgroup(128)]]
kernel void symmetric_product(device const X* A         [[buffer(0)]],
                              device const X* B         [[buffer(1)]],
                              device const float* C     [[buffer(2)]],
                              device S* out             [[buffer(3)]],
                              constant long* prm        [[buffer(4)]],
                              constant float* weights   [[buffer(5)]],
                              uint group     [[threadgroup_position_in_grid]],
                              uint thread_id [[thread_index_in_threadgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float staged[kStaged];
  const uint n = uint(prm[1]);
  const Tile tile = tile_of_triangle(ulong(prm[0]) + group, (n + kTile - 1u) / kTile);
  Sums sums;
  multiply_tile(A, B, prm, tile, staged, thread_id, simdgroup, sums);
  device S* result = out + tile.item * n * n;
  device const float* addend = weights[1] != 0.0f ? C + tile.item * n * n : C;
  UNROLL for (uint part = 0u; part < 2u; ++part) {
    const Place place = {tile.row + part * kHalf, tile.col, n};
    finish(sums.at[part], staged, addend, result, place, weights[0], weights[1], thread_id);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    mirror(staged, result, place, thread_id);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

template [[host_name("symmetric_product_float32_float32")]] [[kernel]]
decltype(symmetric_product<float, float>) symmetric_product<float, float>;
template [[host_name("symmetric_product_float16_float16")]] [[kernel]]
decltype(symmetric_product<half, half>) symmetric_product<half, half>;
template [[host_name("symmetric_product_bfloat16_bfloat16")]] [[kernel]]
decltype(symmetric_product<bfloat, bfloat>) symmetric_product<bfloat, bfloat>;
template [[host_name("symmetric_product_float16_float32")]] [[kernel]]
decltype(symmetric_product<half, float>) symmetric_product<half, float>;
template [[host_name("symmetric_product_bfloat16_float32")]] [[kernel]]
decltype(symmetric_product<bfloat, float>) symmetric_product<bfloat, float>;
