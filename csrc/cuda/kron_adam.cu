#include "kron_adam.cuh"

#include "launch.h"

namespace kpop::cuda {
namespace {

int64_t longer_side(const KronAdamBatch& batch) { return std::max(batch.rows, batch.columns); }

KronAdamItem item_of_batch(const KronAdamBatch& batch, int64_t first_block) {
  return {batch.param,
          batch.grad,
          batch.exp_avg,
          batch.exp_avg_sq,
          batch.left,
          batch.right,
          {batch.device_step, batch.step},
          batch.found_inf,
          static_cast<int>(batch.rows),
          static_cast<int>(batch.columns),
          static_cast<int>(first_block)};
}

}  // namespace

void kron_adam(std::vector<KronAdamBatch> batches, const KronAdamOptions& options, void* stream) {
  // Large ones first, so that none begins when the others are done.
  std::stable_sort(batches.begin(), batches.end(),
                   [](const auto& a, const auto& b) { return longer_side(a) > longer_side(b); });
  KronAdamArguments arguments;
  arguments.original = options.original;
  arguments.settings = settings_of(options.adam);
  for (size_t begin = 0; begin < batches.size(); begin += LARGEST_LIST) {
    const size_t end = std::min(begin + LARGEST_LIST, batches.size());
    int64_t blocks = 0;
    for (size_t i = begin; i < end; ++i) {
      arguments.item[i - begin] = item_of_batch(batches[i], blocks);
      blocks += batches[i].count;
    }
    arguments.items = static_cast<int>(end - begin);
    for_order(longer_side(batches[begin]), [&](auto order) {
      constexpr int N = order;
      launch_with_shared(&kpop::kron_adam<N>, blocks, 2 * N, SHARED_MATRIX<N>, stream, arguments);
    });
  }
}

}  // namespace kpop::cuda
