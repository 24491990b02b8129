// The table of one instruction set. Compiled once for each.
#include "kernels.h"

#define KPOP_STRING_(x) #x
#define KPOP_STRING(x) KPOP_STRING_(x)

namespace kpop::cpu::KPOP_ISA {

void adam(float*, float*, float*, int64_t, const AdamStep&, int);
void quantize_int8(Values, Blocks, AffineOptions, const RandomStream&, AffineCodes, int);
void dequantize_int8(AffineCodes, Blocks, MutableValues, int);
void quantize_dynamic8(Values, Blocks, bool, DynamicCodes, int);
void dequantize_dynamic8(DynamicCodes, Blocks, bool, MutableValues, int);
void ema_int8(AffineCodes, Blocks, Values, float, float, const RandomStream&, float*, int);
void ema_sq_dynamic8(DynamicCodes, Blocks, Values, float, float, float*, int);
void adam8(MutableValues, Values, AffineCodes, DynamicCodes, Blocks, const Adam8Step&, const RandomStream&, int);
void stochastic_round(const float*, int64_t, const RandomStream&, uint16_t*, int);
void symmetric_product(Operand, Operand, const float*, float*, int64_t, int64_t, int64_t, float, float, int);
void inverse_root(const RootItem*, int64_t, const RootOptions&, int);
void normalize(const RootItem*, int64_t, const RootOptions&, int);

const Kernels kernels = {
    KPOP_STRING(KPOP_ISA),
    adam,
    quantize_int8,
    dequantize_int8,
    quantize_dynamic8,
    dequantize_dynamic8,
    ema_int8,
    ema_sq_dynamic8,
    adam8,
    stochastic_round,
    symmetric_product,
    inverse_root,
    normalize,
};

}  // namespace kpop::cpu::KPOP_ISA
