#include "inverse_root.cuh"

#include "launch.h"

namespace kpop::cuda {
namespace {

template <class Products, int N>
void launch_root(const RootArguments& arguments, int64_t blocks, void* stream) {
  launch_with_shared(&kpop::inverse_root<Products, N>, blocks, 2 * N, ROOT_SHARED<N>, stream, arguments);
}

template <class Products>
void launch_for(int64_t largest, const RootArguments& arguments, int64_t blocks, void* stream) {
  if (largest <= 32) return launch_root<Products, 32>(arguments, blocks, stream);
  if (largest <= 64) return launch_root<Products, 64>(arguments, blocks, stream);
  launch_root<Products, LARGEST_ROOT>(arguments, blocks, stream);
}

}  // namespace

void inverse_root(std::vector<RootBatch> batches, const RootOptions& options, void* stream) {
  // Large ones first, so that none begins when the others are done.
  std::stable_sort(batches.begin(), batches.end(), [](const auto& a, const auto& b) { return a.n > b.n; });
  RootArguments arguments;
  arguments.options = options;
  for (size_t begin = 0; begin < batches.size(); begin += LARGEST_BATCHES) {
    const size_t end = std::min(begin + LARGEST_BATCHES, batches.size());
    int64_t blocks = 0;
    for (size_t i = begin; i < end; ++i) {
      const RootBatch& batch = batches[i];
      arguments.item[i - begin] = {batch.A, batch.out, batch.bound, static_cast<int>(batch.n),
                                   static_cast<int>(blocks)};
      blocks += batch.count;
    }
    arguments.items = static_cast<int>(end - begin);
    const int64_t largest = batches[begin].n;
    if (options.float16)
      launch_for<Float16Products>(largest, arguments, blocks, stream);
    else
      launch_for<Float32Products>(largest, arguments, blocks, stream);
  }
}

}  // namespace kpop::cuda
