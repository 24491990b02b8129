// Rotations of matrices whose sides with a factor are up to N, one thread block a matrix, or N of a side without: both
// products in one launch. Bytes moved: those of the matrix twice, and each factor once a thread block, which the L2
// cache gives where it is shared.
#pragma once

#include <type_traits>

#include "rotation.cuh"

namespace kpop {

// A kernel parameter.
struct KronRotateArguments {
  Values G;
  MutableValues out;
  Matrices matrices;
  bool inverse;
};

template <int N>
__global__ void __launch_bounds__(2 * N, 1) kron_rotate(KronRotateArguments a) {
  KPOP_DYNAMIC_SHARED(float, S);
  const Part part = part_of<N>(a.matrices, static_cast<int>(blockIdx.x));
  const Place place;
  load_part<N>(S, a.G, false, part, place);
  __syncthreads();
  rotate<N>(S, part, a.inverse, place);
  typed(a.out.data, a.out.type, [&](auto* out) {
    using Element = std::remove_pointer_t<decltype(out)>;
    each_batch<N>(part.rows, part.columns, place, [&](const Batch<N>& batch) {
      batch.each([&](int, int row, int column) {
        out[part.place_of(row, column)] = narrow<Element>(S[shared_index<N>(row, column)]);
      });
    });
  });
}

}  // namespace kpop
