// The table of one instruction set. Compiled once for each.
#include "kernels.h"

#define KPOP_STRING_(x) #x
#define KPOP_STRING(x) KPOP_STRING_(x)

namespace kpop::cpu::KPOP_ISA {

void adam(float*, float*, float*, int64_t, const AdamStep&, int);
void symmetric_ema(float*, int64_t, int64_t, const float*, int64_t, int64_t, float, float, int);
void symmetric_product(Operand, Operand, const float*, float*, int64_t, int64_t, int64_t, float, float, int);
void inverse_root(const RootItem*, int64_t, const RootOptions&, int);

const Kernels kernels = {KPOP_STRING(KPOP_ISA), adam, symmetric_ema, symmetric_product, inverse_root};

}  // namespace kpop::cpu::KPOP_ISA
