// 16 random bits for each element of a group, by one call of Philox.
#pragma once

#include <cuda_runtime.h>

#include "../common/blocks.h"
#include "../common/philox.h"
#include "quantize.h"
#include "scalar.cuh"

namespace kpop {

// A kernel parameter.
struct RandomSource {
  PhiloxKeys keys;
  uint32_t stream;
  Scalar<int64_t> step;
  uint64_t offset;
};

inline RandomSource source_of(const cuda::RandomArguments& random) {
  const RandomStream& stream = random.stream;
  return {philox_keys(stream.seed), stream.stream, {random.step, stream.step}, stream.offset};
}

class Random {
 public:
  __device__ __forceinline__ explicit Random(const RandomSource& source)
      : Random(source, source.stream, source.offset) {}
  __device__ __forceinline__ Random(const RandomSource& source, uint32_t stream, uint64_t offset)
      : source_(source), stream_(stream), step_(static_cast<uint32_t>(source.step.value())), offset_(offset) {}

  // The random numbers of eight elements, the first of which belongs to entry 0 of a call.
  __device__ __forceinline__ Philox4 of_call(int64_t first) const {
    const uint64_t call = (offset_ + static_cast<uint64_t>(first)) >> 3;
    return philox4(static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32), step_, stream_, source_.keys);
  }

  // The same wherever the first one lies: a group between two calls takes the end of one and the begin of the next.
  __device__ __forceinline__ Philox4 of_group(int64_t first) const {
    const int skipped = static_cast<int>(offset_ & 7);
    const Philox4 begin = of_call(first);
    if (skipped == 0) return begin;
    const Philox4 end = of_call(first + 8);
    uint32_t words[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = begin.word[i];
      words[4 + i] = end.word[i];
    }
    if (skipped & 4)
#pragma unroll
      for (int i = 0; i < 6; ++i) words[i] = words[i + 2];
    if (skipped & 2)
#pragma unroll
      for (int i = 0; i < 5; ++i) words[i] = words[i + 1];
    if (skipped & 1)
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], 16);
    return {{words[0], words[1], words[2], words[3]}};
  }

 private:
  const RandomSource& source_;
  uint32_t stream_, step_;
  uint64_t offset_;
};

}  // namespace kpop
