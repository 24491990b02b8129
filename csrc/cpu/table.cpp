// The table of one instruction set. Compiled once for each.
#include "kernels.h"

#define KPOP_STRING_(x) #x
#define KPOP_STRING(x) KPOP_STRING_(x)

namespace kpop::cpu::KPOP_ISA {

void adam(float*, float*, float*, int64_t, const AdamStep&, int);
void kron_adam(const KronAdamItem*, int64_t, const AdamStep&, const KronUpdate&, int);
void two_sided(const TwoSidedItem*, int64_t, bool, bool, int);
void quantize_int8(BlockItems, AffineOptions, RandomKey, int);
void dequantize_int8(BlockItems, int);
void quantize_dynamic8(BlockItems, bool, int);
void dequantize_dynamic8(BlockItems, bool, int);
void ema_int8(BlockItems, Decay, RandomKey, int);
void ema_sq_dynamic8(BlockItems, Decay, int);
void adam8(BlockItems, const Adam8Step&, RandomKey, int);
void kron_adam8(const KronAdam8Item*, int64_t, int64_t, const Adam8Step&, bool, uint64_t, int);
void stochastic_round(BlockItems, RandomKey, int);
void symmetric_products(const SymmetricItem*, int64_t, float, int);
void kl_factors(const KlFactorItem*, int64_t, Decay, float, int);
void block_project(const BlockParts*, int64_t, int);
void block_lift(const BlockParts*, int64_t, float, float, int);
void inverse_root(const RootItem*, int64_t, const RootOptions&, int);
void normalize(const RootItem*, int64_t, const RootOptions&, int);
void refresh_eigenbasis(const BasisItem*, int64_t, bool, int);
void prepare_eigenbasis(const BasisItem*, int64_t, float, int);
void take_eigenbasis(const BasisItem*, const Eigenpairs*, int64_t, float, bool, int);

const Kernels kernels = {
    KPOP_STRING(KPOP_ISA),
    adam,
    kron_adam,
    two_sided,
    quantize_int8,
    dequantize_int8,
    quantize_dynamic8,
    dequantize_dynamic8,
    ema_int8,
    ema_sq_dynamic8,
    adam8,
    kron_adam8,
    stochastic_round,
    symmetric_products,
    kl_factors,
    block_project,
    block_lift,
    inverse_root,
    normalize,
    refresh_eigenbasis,
    prepare_eigenbasis,
    take_eigenbasis,
};

}  // namespace kpop::cpu::KPOP_ISA
