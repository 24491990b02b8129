#include "kron_rotate.cuh"

#include "launch.h"

namespace kpop::cuda {

void kron_rotate(Values G, MutableValues out, const KronShape& shape, bool inverse, void* stream) {
  const KronRotateArguments arguments = {G, out, matrices_of(shape), inverse};
  for_order(order_of(shape), [&](auto order) {
    constexpr int N = order;
    const int64_t blocks = shape.count * parts_of<N>(arguments.matrices);
    launch_with_shared(&kpop::kron_rotate<N>, blocks, 2 * N, SHARED_MATRIX<N>, stream, arguments);
  });
}

}  // namespace kpop::cuda
