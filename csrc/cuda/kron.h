// Rotations and Adam in a rotated basis in CUDA, free of CUDA's types; see roots.h for what the calls do.
#pragma once

#include <vector>

#include "../common/blocks.h"
#include "adam.h"
#include "lists.h"

namespace kpop::cuda {

// Square factors, one behind another if there are `many`, or one for all matrices. nullptr is the identity.
struct Factor {
  const float* data;
  bool many;
};

// Matrices with sides up to LARGEST_ORDER, one behind another, with what a step of Adam needs. `device_step` is nullptr
// where `step` holds; nothing changes if `found_inf` points to anything but 0.
struct KronAdamBatch {
  MutableValues param;
  Values grad;
  float *exp_avg, *exp_avg_sq;
  Factor left, right;
  const int64_t* device_step;
  int64_t step;
  const float* found_inf;
  int64_t count, rows, columns;
};

struct KronAdamOptions {
  AdamArguments adam;
  bool original;  // the first moment is kept in the basis of the gradient
};

// One launch for up to LARGEST_LIST batches, whatever their shapes and types.
void kron_adam(std::vector<KronAdamBatch> batches, const KronAdamOptions& options, void* stream);

// out <- transposed(left) G right, or left G transposed(right) for the inverse.
void kron_rotate(Values G, MutableValues out, Factor left, Factor right, bool inverse, int64_t count, int64_t rows,
                 int64_t columns, void* stream);

}  // namespace kpop::cuda
