// Stands in for the CUDA toolkit's header when a kernel is compiled for the host.
#pragma once

#define __host__
#define __device__
#define __global__
#define __constant__ static
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__

#include "../intrinsics.h"
#include "../runtime.h"
#include "../shared_memory.h"
#include "../synchronization.h"
#include "../vector_types.h"
#include "../warp.h"
