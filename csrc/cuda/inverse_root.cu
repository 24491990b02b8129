#include "inverse_root.cuh"

#include "launch.h"

namespace kpop::cuda {

void inverse_root(std::vector<RootBatch> batches, const RootOptions& options, void* stream) {
  RootArguments arguments;
  arguments.options = options;
  const auto launch_list = [&](auto order, const RootBatch* batch, size_t count) {
    constexpr int N = order;
    int64_t blocks = 0;
    for (size_t i = 0; i < count; ++i) {
      const RootBatch& b = batch[i];
      arguments.item[i] = {b.A, b.out, b.bound, static_cast<int>(b.n), static_cast<int>(blocks)};
      blocks += b.count;
    }
    arguments.items = static_cast<int>(count);
    const auto kernel =
        options.float16 ? &kpop::inverse_root<Float16Products, N> : &kpop::inverse_root<Float32Products, N>;
    launch_with_shared(kernel, blocks, 2 * N, SHARED_MATRIX<N>, stream, arguments);
  };
  for_each_launch<LARGEST_LIST>(std::move(batches), [](const RootBatch& b) { return b.n; }, launch_list);
}

}  // namespace kpop::cuda
