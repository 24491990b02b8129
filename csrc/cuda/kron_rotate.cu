#include "kron_rotate.cuh"

#include "launch.h"

namespace kpop::cuda {

void kron_rotate(Values G, MutableValues out, Factor left, Factor right, bool inverse, int64_t count, int64_t rows,
                 int64_t columns, void* stream) {
  const KronRotateArguments arguments = {G, out, left, right, static_cast<int>(rows), static_cast<int>(columns)};
  for_order(std::max(rows, columns), [&](auto order) {
    constexpr int N = order;
    const auto kernel = inverse ? &kpop::kron_rotate<true, N> : &kpop::kron_rotate<false, N>;
    launch_with_shared(kernel, count, 2 * N, SHARED_MATRIX<N>, stream, arguments);
  });
}

}  // namespace kpop::cuda
