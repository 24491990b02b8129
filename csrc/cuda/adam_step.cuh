// One step of Adam on one element, and what follows from its settings. Every product and sum is rounded.
#pragma once

#include <cstdint>

#include "adam.h"
#include "scalar.cuh"

namespace kpop {

struct Decay {
  float beta, one_minus_beta;
};

inline Decay decay_of(double beta) { return {static_cast<float>(beta), static_cast<float>(1.0 - beta)}; }

// m <- beta m + (1 - beta) x
__device__ __forceinline__ float averaged(float m, float x, Decay decay) {
  return __fadd_rn(__fmul_rn(decay.beta, m), __fmul_rn(decay.one_minus_beta, x));
}

// v <- beta v + ((1 - beta) x) x
__device__ __forceinline__ float averaged_square(float v, float x, Decay decay) {
  return __fadd_rn(__fmul_rn(decay.beta, v), __fmul_rn(__fmul_rn(decay.one_minus_beta, x), x));
}

// A part of kernel parameters. Where step and learning rate are in device memory, what follows from them is computed
// there.
struct AdamSettings {
  Decay decay1, decay2;
  double beta1, beta2, weight_decay;
  float eps, limit;
  bool maximize;
  Scalar<double> lr;
};

inline AdamSettings settings_of(const cuda::AdamArguments& step) {
  return {decay_of(step.beta1),
          decay_of(step.beta2),
          step.beta1,
          step.beta2,
          step.weight_decay,
          static_cast<float>(step.eps),
          static_cast<float>(step.limit),
          step.maximize,
          {step.device_lr, step.lr}};
}

// What follows from step and learning rate.
struct AdamStep {
  float correction1, correction2, lr, decay;
};

// 1 / (1 - beta^step), by squares.
__device__ __forceinline__ float bias_correction(double beta, int64_t step) {
  double power = 1.0;
  for (; step > 0; step >>= 1) {
    if (step & 1) power = __dmul_rn(power, beta);
    beta = __dmul_rn(beta, beta);
  }
  return static_cast<float>(1.0 / (1.0 - power));
}

__device__ __forceinline__ AdamStep adam_step(const AdamSettings& settings, int64_t step) {
  const double lr = settings.lr.value();
  return {bias_correction(settings.beta1, step), bias_correction(settings.beta2, step), static_cast<float>(lr),
          static_cast<float>(1.0 - __dmul_rn(lr, settings.weight_decay))};
}

// The first moment over the root of the second one, within the limit; NaN stays NaN.
__device__ __forceinline__ float normalized(float m, float v, const AdamStep& step, const AdamSettings& settings) {
  const float denominator = __fadd_rn(__fsqrt_rn(__fmul_rn(v, step.correction2)), settings.eps);
  float N = __fdiv_rn(__fmul_rn(m, step.correction1), denominator);
  N = N > settings.limit ? settings.limit : N;
  return N < -settings.limit ? -settings.limit : N;
}

// The parameter after decay and update.
__device__ __forceinline__ float decayed(float W, float update, const AdamStep& step) {
  return __fadd_rn(__fmul_rn(W, step.decay), -__fmul_rn(step.lr, update));
}

}  // namespace kpop
