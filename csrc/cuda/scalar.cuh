// Numbers that a kernel is given.
#pragma once

#include <cuda_runtime.h>

namespace kpop {

// A number that the host knows, or one in device memory that only the kernel may read.
template <typename T>
struct Scalar {
  const T* memory;
  T number;

  __device__ __forceinline__ T value() const { return memory ? *memory : number; }
};

}  // namespace kpop
