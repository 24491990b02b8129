// What follows Adam's averages: the normalized first moment, and the parameter that it moves. Square root and
// quotient are the GPU's: moments may be promised bit for bit, parameters are not.
#include "exact.metal"

// What N is computed with.
struct Normalization {
  float correction1, correction2, eps, limit;
};

// weights: beta1, 1 - beta1, beta2, 1 - beta2, eps, limit of |N|.
// update: 1 / (1 - beta1^t), 1 / (1 - beta2^t), lr, 1 - lr weight_decay, found_inf.
static inline Normalization normalization_of(constant float* weights, constant float* update) {
  return {update[0], update[1], weights[4], weights[5]};
}

// Whether the step is left out: found_inf is not zero.
static inline bool is_left_out(constant float* update) {
  return magnitude(as_type<uint>(update[4])) != 0u;
}

// N = (m c1) / (sqrt(v c2) + eps) within +-limit; NaN where a moment is NaN, or the first one infinite.
static inline uint normalized(uint m, uint v, Normalization u, float minus_zero) {
  const float root = precise::sqrt(multiply_rounded(as_type<float>(v), u.correction2, minus_zero));
  const float numerator = multiply_rounded(as_type<float>(m), u.correction1, minus_zero);
  float N = precise::divide(numerator, root + u.eps);
  N = N > u.limit ? u.limit : N;
  N = N < -u.limit ? -u.limit : N;
  return is_finite(m) && !is_nan(v) ? as_type<uint>(N) : kQuietNan;
}

// decay W - lr N.
static inline uint moved(uint parameter, uint N, constant float* update, float minus_zero) {
  const float kept = multiply_rounded(as_type<float>(parameter), update[3], minus_zero);
  const float result = kept - multiply_rounded(update[2], as_type<float>(N), minus_zero);
  return is_nan(N) ? kQuietNan : as_type<uint>(result);
}
