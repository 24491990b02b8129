#include "kron_adam.cuh"

#include "launch.h"

namespace kpop::cuda {

void kron_adam(std::vector<KronAdamBatch> batches, const KronAdamOptions& options, void* stream) {
  KronAdamArguments arguments;
  arguments.original = options.original;
  arguments.settings = settings_of(options.adam);
  const auto launch_list = [&](auto order, const KronAdamBatch* batch, size_t count) {
    constexpr int N = order;
    int64_t blocks = 0;
    for (size_t i = 0; i < count; ++i) {
      const KronAdamBatch& b = batch[i];
      const Matrices matrices = matrices_of(b.shape);
      arguments.item[i] = {b.param,     b.grad,   b.exp_avg,
                           b.exp_avg_sq, matrices, {b.device_step, b.step},
                           b.found_inf, static_cast<int>(blocks)};
      blocks += b.shape.count * parts_of<N>(matrices);
    }
    arguments.items = static_cast<int>(count);
    launch_with_shared(&kpop::kron_adam<N>, blocks, 2 * N, SHARED_MATRIX<N>, stream, arguments);
  };
  for_each_launch<LARGEST_LIST>(std::move(batches), [](const auto& b) { return order_of(b.shape); }, launch_list);
}

}  // namespace kpop::cuda
