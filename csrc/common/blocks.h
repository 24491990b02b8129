// Tensors as the kernels of every device see them: flat memory, perhaps in blocks of 8-bit codes.
#pragma once
#include "portable.h"

namespace kpop {

// Element types of tensors that are computed in float32.
enum class Float { float32, bfloat16, float16 };

// Elements of any of these types.
struct Values {
  const void* data;
  Float type;
};

struct MutableValues {
  void* data;
  Float type;
};

// Names the random numbers of a tensor: element i takes those of the global element offset + i.
struct RandomStream {
  uint64_t seed;
  uint32_t step, stream;
  uint64_t offset;
};

// A flattened tensor of `count` elements in blocks, the last one perhaps short.
struct Blocks {
  int64_t count, block_size;
};

constexpr int64_t LARGEST_BLOCK = 4096;

struct AffineCodes {
  uint8_t* codes;
  float* scales;
  uint8_t* zero_points;
};

struct DynamicCodes {
  uint8_t* codes;
  float* absmax;
};

// One tensor of a list: how many elements it has, and what a kernel on 8-bit blocks reads and writes of it.
struct BlockItem {
  int64_t count;
  Values x;
  MutableValues out;
  AffineCodes affine;
  DynamicCodes dynamic;
  uint32_t stream;  // of its random numbers,
  uint64_t offset;  // the first of which is that of this element
};

struct AffineOptions {
  bool stochastic, paper;
};

}  // namespace kpop
