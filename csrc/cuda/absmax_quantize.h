// Host interface of absmax_quantize.cuh, free of CUDA's types.
#pragma once

#include <cstdint>

#include "../common/element_type.h"

namespace kpop {

// Queues the quantization of n elements at `x` on the CUDA stream: n codes and ceil(n / block_size) scales.
// block_size is a power of two from 32 to 2048 (std::invalid_argument otherwise); n may be 0. A launch that
// the runtime refuses throws std::runtime_error with its words.
void absmax_quantize_cuda(const void* x, ElementType type, int8_t* codes, float* scales, int64_t n,
                          int block_size, void* stream);

}  // namespace kpop
