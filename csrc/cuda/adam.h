// Scalars of one step of Adam as the calls take them, free of CUDA's types.
#pragma once

namespace kpop::cuda {

// `limit` bounds the normalized update. `device_lr` is nullptr where `lr` holds.
struct AdamArguments {
  double beta1, beta2, eps, weight_decay, limit;
  bool maximize;
  double lr;
  const double* device_lr;
};

}  // namespace kpop::cuda
