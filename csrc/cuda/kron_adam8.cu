#include "kron_adam8.cuh"

#include "launch.h"

namespace kpop::cuda {
namespace {

bool aligned(const KronAdam8Batch& batch) {
  const BlockItem& blocks = batch.blocks;
  return aligned_to_16({blocks.affine.codes, blocks.dynamic.codes, batch.scratch});
}

// A side without a basis lies in one thread block too: blocks of codes run on from row to row.
int64_t longer_side(const KronAdam8Batch& batch) { return std::max(batch.shape.rows, batch.shape.columns); }

}  // namespace

void kron_adam8(std::vector<KronAdam8Batch> batches, const KronAdamOptions& options, int64_t block_size, uint64_t seed,
                const DynamicMap* map, void* stream) {
  KronAdam8Arguments arguments;
  arguments.original = options.original;
  arguments.settings = settings_of(options.adam);
  arguments.map = map;
  arguments.keys = philox_keys(seed);
  arguments.tiling = tiling_of({0, block_size}, false);
  arguments.block_size = static_cast<int>(block_size);
  const auto launch_list = [&](auto order, const KronAdam8Batch* batch, size_t count) {
    constexpr int N = order;
    int64_t blocks = 0;
    for (size_t i = 0; i < count; ++i) {
      const KronAdam8Batch& b = batch[i];
      arguments.item[i] = {b.blocks,    b.scratch,
                           matrices_of(b.shape), {b.device_step, b.step},
                           b.found_inf, static_cast<int>(blocks),
                           aligned(b)};
      blocks += b.shape.count;
    }
    arguments.items = static_cast<int>(count);
    launch_with_shared(&kpop::kron_adam8<N>, blocks, 2 * N, SHARED_MATRIX<N>, stream, arguments);
  };
  for_each_launch<LARGEST_LIST8>(std::move(batches), longer_side, launch_list);
}

}  // namespace kpop::cuda
