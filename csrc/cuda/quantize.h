// The CUDA kernels on 8-bit blocks, free of CUDA's types: each function queues its work on a stream of the current
// device. common/rounding.h and common/codebook.h define the bits. A launch that the runtime refuses throws
// std::runtime_error with its words.
#pragma once

#include "../common/blocks.h"
#include "adam.h"

namespace kpop {
struct DynamicMap;
}

namespace kpop::cuda {

// A random stream whose step may lie in device memory; nullptr for the stream's own.
struct RandomArguments {
  RandomStream stream;
  const int64_t* step;
};

// A step of Adam on 8-bit moments, whose number is that of the random stream. Nothing changes if `found_inf` points to
// anything but 0.
struct Adam8Arguments {
  AdamArguments adam;
  const float* found_inf;
};

void quantize_int8(Values x, Blocks blocks, AffineOptions options, const RandomArguments& random, AffineCodes out,
                   void* stream);
void dequantize_int8(AffineCodes codes, Blocks blocks, MutableValues out, void* stream);

// The map lies in device memory.
void quantize_dynamic8(Values x, Blocks blocks, const DynamicMap* map, bool is_signed, DynamicCodes out, void* stream);
void dequantize_dynamic8(DynamicCodes codes, Blocks blocks, const DynamicMap* map, MutableValues out, void* stream);

// m <- beta m + (1 - beta) x in float32 to `out`, rounded stochastically into the codes.
void ema_int8(AffineCodes codes, Blocks blocks, Values x, double beta, const RandomArguments& random, float* out,
              void* stream);

// v <- beta v + (1 - beta) x x in float32 to `out`, its nearest codes into the codes.
void ema_sq_dynamic8(DynamicCodes codes, Blocks blocks, const DynamicMap* map, Values x, double beta, float* out,
                     void* stream);

void adam8(MutableValues param, Values grad, AffineCodes exp_avg, DynamicCodes exp_avg_sq, Blocks blocks,
           const DynamicMap* map, const Adam8Arguments& step, const RandomArguments& random, void* stream);

// Lists of tensors in blocks of one size, 32 a launch. The random stream says seed and step, each item the rest.
void quantize_int8_list(const BlockItem* items, int64_t count, int64_t block_size, AffineOptions options,
                        const RandomArguments& random, void* stream);
void dequantize_int8_list(const BlockItem* items, int64_t count, int64_t block_size, void* stream);
void ema_int8_list(const BlockItem* items, int64_t count, int64_t block_size, double beta,
                   const RandomArguments& random, void* stream);
void ema_sq_dynamic8_list(const BlockItem* items, int64_t count, int64_t block_size, const DynamicMap* map,
                          double beta, void* stream);
void adam8_list(const BlockItem* items, int64_t count, int64_t block_size, const DynamicMap* map,
                const Adam8Arguments& step, const RandomArguments& random, void* stream);

// float32 to bfloat16.
void stochastic_round(const float* x, int64_t count, const RandomArguments& random, uint16_t* out, void* stream);

}  // namespace kpop::cuda
