// Inverse roots in CUDA, free of CUDA's types. The calls queue their work on a stream of the current device; a launch
// that the runtime refuses throws std::runtime_error with its words.
#pragma once

#include <vector>

#include "../common/blocks.h"
#include "lists.h"

namespace kpop::cuda {

constexpr int LARGEST_STEPS = 64;

// Matrices of order n, one behind another, their roots and the bounds of their spectra.
struct RootBatch {
  const void* A;
  void* out;
  float* bound;
  int64_t count, n;
};

// The numbers of one step. Y, Z and P are stored times powers of two, which these hold:
//   P <- product ZY,   Y <- keep_Y Y + add_Y YP,   Z <- keep_Z Z + add_Z PZ.
struct RootStep {
  float product, keep_Y, add_Y, keep_Z, add_Z;
};

// A coupled iteration: what Y is multiplied by before it, and Y and Z after it, to set and undo the scales.
struct RootStage {
  int steps;
  float scale_Y, scale_Z, unscale_Y, unscale_Z;
  RootStep step[LARGEST_STEPS];
};

// `float16` chooses products of float16 operands, which the scales of the stages must suit, instead of float32 ones.
struct RootOptions {
  int p;
  Float type;  // of matrices and roots
  bool float16;
  float damping, relative_damping;
  RootStage first, second;
};

// One launch for up to LARGEST_LIST batches, whatever their orders.
void inverse_root(std::vector<RootBatch> batches, const RootOptions& options, void* stream);

}  // namespace kpop::cuda
