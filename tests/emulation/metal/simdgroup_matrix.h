// 8x8 matrices held by a simdgroup. Lane l holds the elements 2l and 2l + 1 in row-major order; Metal leaves
// that map open, so thread_elements() does not exist here.
#pragma once

#include "simdgroup.h"

namespace emulation {

constexpr uint matrix_order = 8;
constexpr uint elements_per_lane = matrix_order * matrix_order / simd_width;

template <class T>
inline Lanes<T> exchange_by_all_lanes(T own, Site site) {
  const auto lanes = Lanes<T>::exchange(own, site);
  if (lanes.active() != ~0u)
    threadgroup_state.report("simdgroup_matrix operation with inactive lanes, " + describe(site));
  return lanes;
}

template <class P>
inline void check_same_address(P pointer, Site site) {
  const auto addresses = exchange_by_all_lanes((std::uintptr_t)(const void*)pointer, site);
  if (addresses[0] != (std::uintptr_t)(const void*)pointer)
    threadgroup_state.report("lanes pass different addresses to one matrix operation, " + describe(site));
}

}  // namespace emulation

namespace metal {

template <class T, int Rows, int Columns>
struct simdgroup_matrix {
  static_assert(Rows == 8 && Columns == 8, "a simdgroup_matrix is 8x8");
  static_assert(emulation::is_floating<T>, "a simdgroup_matrix holds half, bfloat or float");
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal) {
    for (uint e = 0; e < emulation::elements_per_lane; ++e)
      elements[e] = row(e) == column(e) ? diagonal : T(0.0f);
  }

  static uint index(uint e) {
    const uint lane = emulation::threadgroup_state.thread_index() % emulation::simd_width;
    return lane * emulation::elements_per_lane + e;
  }
  static uint row(uint e) { return index(e) / emulation::matrix_order; }
  static uint column(uint e) { return index(e) % emulation::matrix_order; }
  static ulong offset(uint e, ulong elements_per_row, ulong2 origin, bool transpose) {
    const ulong r = transpose ? column(e) : row(e), c = transpose ? row(e) : column(e);
    return (origin.y + r) * elements_per_row + origin.x + c;
  }

  T elements[emulation::elements_per_lane];
};

using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int Rows, int Columns>
inline simdgroup_matrix<T, Rows, Columns> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, Rows, Columns> matrix;
  for (T& element : matrix.elements) element = value;
  return matrix;
}

// P is a device, constant or threadgroup pointer; the origin is (column, row).
template <class T, class P>
inline void simdgroup_load(simdgroup_matrix<T, 8, 8>& matrix, P* source, ulong elements_per_row = 8,
                           ulong2 origin = ulong2{0, 0}, bool transpose = false, EMULATION_SITE) {
  emulation::check_same_address(source, site);
  for (uint e = 0; e < emulation::elements_per_lane; ++e)
    matrix.elements[e] = source[matrix.offset(e, elements_per_row, origin, transpose)];
}

template <class T, class P>
inline void simdgroup_store(const simdgroup_matrix<T, 8, 8>& matrix, P* destination,
                            ulong elements_per_row = 8, ulong2 origin = ulong2{0, 0}, bool transpose = false,
                            EMULATION_SITE) {
  emulation::check_same_address(destination, site);
  for (uint e = 0; e < emulation::elements_per_lane; ++e)
    destination[matrix.offset(e, elements_per_row, origin, transpose)] = matrix.elements[e];
}

// D = A B + C, accumulated in float from k = 0 up. D may be C.
template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                          const simdgroup_matrix<B, 8, 8>& b,
                                          const simdgroup_matrix<C, 8, 8>& c, EMULATION_SITE) {
  using emulation::elements_per_lane;
  using emulation::matrix_order;
  struct Operands {
    float a[elements_per_lane], b[elements_per_lane];
  } own;
  for (uint e = 0; e < elements_per_lane; ++e) {
    own.a[e] = float(a.elements[e]);
    own.b[e] = float(b.elements[e]);
  }
  const auto lanes = emulation::exchange_by_all_lanes(own, site);
  for (uint e = 0; e < elements_per_lane; ++e) {
    float sum = float(c.elements[e]);
    for (uint k = 0; k < matrix_order; ++k) {
      const uint left = d.row(e) * matrix_order + k, right = k * matrix_order + d.column(e);
      sum = __builtin_fmaf(lanes[left / elements_per_lane].a[left % elements_per_lane],
                           lanes[right / elements_per_lane].b[right % elements_per_lane], sum);
    }
    d.elements[e] = D(sum);
  }
}

template <class D, class A, class B>
inline void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                               const simdgroup_matrix<B, 8, 8>& b, EMULATION_SITE) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>(D(0.0f)), site);
}

}  // namespace metal
