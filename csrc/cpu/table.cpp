// The table of one instruction set. Compiled once for each.
#include "kernels.h"

#define KPOP_STRING_(x) #x
#define KPOP_STRING(x) KPOP_STRING_(x)

namespace kpop::cpu::KPOP_ISA {

void adam(float*, float*, float*, int64_t, const AdamStep&, int);
void symmetric_ema(float*, int64_t, int64_t, const float*, int64_t, int64_t, float, float, int);

const Kernels kernels = {KPOP_STRING(KPOP_ISA), adam, symmetric_ema};

}  // namespace kpop::cpu::KPOP_ISA
