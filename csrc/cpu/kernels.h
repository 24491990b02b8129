// The CPU kernels, one table for each instruction set.
//
// Every file that defines a kernel is compiled once for each instruction set with KPOP_ISA naming it, and puts its
// functions into namespace kpop::cpu::KPOP_ISA. Such files include no header with inline functions of external
// linkage: the linker would keep one copy of each, perhaps one with instructions that this processor lacks.
#pragma once
#include <cstdint>

namespace kpop::cpu {

// Scalars of one Adam step; the corrections are 1 / (1 - beta^t).
struct AdamStep {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float correction1, correction2, eps, sign;
};

struct Kernels {
  const char* name;

  // m <- beta1 m + (1 - beta1) sign g;  v <- beta2 v + (1 - beta2) g g;
  // g <- (m correction1) / (sqrt(v correction2) + eps).  All contiguous, `count` elements.
  // Moves 12 bytes in and 12 bytes out for each element.
  void (*adam)(float* g, float* m, float* v, int64_t count, const AdamStep& step, int threads);

  // S <- beta S + alpha P for `batch` n x n matrices, lower triangles computed, upper ones mirrored.
  // P is contiguous; S has a batch stride and a row stride, its columns are contiguous.
  void (*symmetric_ema)(float* S, int64_t batch_stride, int64_t row_stride, const float* P, int64_t batch, int64_t n,
                        float beta, float alpha, int threads);
};

namespace baseline { extern const Kernels kernels; }
namespace avx2 { extern const Kernels kernels; }
namespace avx512 { extern const Kernels kernels; }

// The table of an instruction set, or nullptr when this build or this processor has none of that name.
const Kernels* find_kernels(const char* name);

// The fastest table that this processor runs.
const Kernels& best_kernels();

}  // namespace kpop::cpu
