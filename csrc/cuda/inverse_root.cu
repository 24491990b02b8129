#include "inverse_root.cuh"

#include "launch.h"

namespace kpop::cuda {
void inverse_root(std::vector<RootBatch> batches, const RootOptions& options, void* stream) {
  // Large ones first, so that none begins when the others are done.
  std::stable_sort(batches.begin(), batches.end(), [](const auto& a, const auto& b) { return a.n > b.n; });
  RootArguments arguments;
  arguments.options = options;
  for (size_t begin = 0; begin < batches.size(); begin += LARGEST_LIST) {
    const size_t end = std::min(begin + LARGEST_LIST, batches.size());
    int64_t blocks = 0;
    for (size_t i = begin; i < end; ++i) {
      const RootBatch& batch = batches[i];
      arguments.item[i - begin] = {batch.A, batch.out, batch.bound, static_cast<int>(batch.n),
                                   static_cast<int>(blocks)};
      blocks += batch.count;
    }
    arguments.items = static_cast<int>(end - begin);
    for_order(batches[begin].n, [&](auto order) {
      constexpr int N = order;
      const auto kernel =
          options.float16 ? &kpop::inverse_root<Float16Products, N> : &kpop::inverse_root<Float32Products, N>;
      launch_with_shared(kernel, blocks, 2 * N, SHARED_MATRIX<N>, stream, arguments);
    });
  }
}

}  // namespace kpop::cuda
