// Moving averages kept in blocks: restored, averaged, left as bits. Every product and sum is rounded.
#include "affine.metal"
#include "dynamic.metal"

// beta m + (1 - beta) x over the restored m. NaN in the block's scale wins, then x where it is not finite.
static inline void average(thread const uint* x, float beta, float one_minus_beta, float minus_zero,
                           thread uint* m) {
  for (uint i = 0u; i < kElements; ++i) {
    const float old_part = multiply_rounded(beta, as_type<float>(m[i]), minus_zero);
    const float new_part = multiply_rounded(one_minus_beta, as_type<float>(x[i]), minus_zero);
    const uint mean = as_type<uint>(old_part + new_part);
    m[i] = is_nan(m[i]) ? kQuietNan : (is_finite(x[i]) ? mean : x[i]);
  }
}

// beta v + ((1 - beta) x) x over the restored v.
static inline void average_square(thread const uint* x, float beta, float one_minus_beta, float minus_zero,
                                  thread uint* v) {
  for (uint i = 0u; i < kElements; ++i) {
    const float value = as_type<float>(x[i]);
    const float old_part = multiply_rounded(beta, as_type<float>(v[i]), minus_zero);
    const float weighted = multiply_rounded(one_minus_beta, value, minus_zero);
    const uint mean = as_type<uint>(old_part + multiply_rounded(weighted, value, minus_zero));
    v[i] = is_nan(v[i]) ? kQuietNan : (is_finite(x[i]) ? mean : magnitude(x[i]));
  }
}
