// Rotations and Adam in a rotated basis in CUDA, free of CUDA's types; see roots.h for what the calls do.
#pragma once

#include <vector>

#include "../common/blocks.h"
#include "adam.h"
#include "lists.h"

namespace kpop {
struct DynamicMap;
}

namespace kpop::cuda {

// Square factors, one behind another if there are `many`, or one for all matrices. nullptr is the identity.
struct Factor {
  const float* data;
  bool many;
};

// Matrices one behind another. Sides with a factor are up to LARGEST_ORDER, others up to 2^24.
struct KronShape {
  Factor left, right;
  int64_t count, rows, columns;
};

// Matrices with what a step of Adam needs. `device_step` is nullptr where `step` holds; nothing changes if `found_inf`
// points to anything but 0.
struct KronAdamBatch {
  MutableValues param;
  Values grad;
  float *exp_avg, *exp_avg_sq;
  KronShape shape;
  const int64_t* device_step;
  int64_t step;
  const float* found_inf;
};

struct KronAdamOptions {
  AdamArguments adam;
  bool original;  // the first moment is kept in the basis of the gradient
};

// The same with moments in 8-bit blocks: one matrix with sides up to LARGEST_ORDER, or several of whole blocks each.
// `scratch` has a float for each element where the first moment is kept in the basis of the gradient.
struct KronAdam8Batch {
  BlockItem blocks;
  float* scratch;
  KronShape shape;
  const int64_t* device_step;
  int64_t step;
  const float* found_inf;
};

// One launch for up to 128 batches, with blocks of up to 1024 elements. The map lies in device memory.
void kron_adam8(std::vector<KronAdam8Batch> batches, const KronAdamOptions& options, int64_t block_size, uint64_t seed,
                const DynamicMap* map, void* stream);

// One launch for up to LARGEST_LIST batches, whatever their shapes and types.
void kron_adam(std::vector<KronAdamBatch> batches, const KronAdamOptions& options, void* stream);

// out <- transposed(left) G right, or left G transposed(right) for the inverse.
void kron_rotate(Values G, MutableValues out, const KronShape& shape, bool inverse, void* stream);

}  // namespace kpop::cuda
