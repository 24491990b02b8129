// Kernel launches in plain C++, which the emulation compiles as it is.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lists.h"

namespace kpop {

inline void require_success(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

// Queues a kernel with so many bytes of dynamic shared memory on a stream. Arguments convert to the kernel's parameters;
// an empty grid launches nothing.
template <typename... Parameters, typename... Arguments>
void launch_with_shared(void (*kernel)(Parameters...), int64_t grid, int threads, int shared_bytes, void* stream,
                        Arguments&&... arguments) {
  constexpr int always_allowed = 48 * 1024;
  if (grid == 0) return;
  if (shared_bytes > always_allowed)
    require_success(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
                    "the device has too little shared memory");
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  require_success(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...),
                  "a CUDA kernel was not launched");
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), int64_t grid, int threads, void* stream, Arguments&&... arguments) {
  launch_with_shared(kernel, grid, threads, 0, stream, std::forward<Arguments>(arguments)...);
}

// Calls f with the least order of the kernels for matrices in one thread block that is not below a matrix's.
template <typename Function>
void for_order(int64_t order, Function f) {
  if (order <= 32) return f(std::integral_constant<int, 32>());
  if (order <= 64) return f(std::integral_constant<int, 64>());
  f(std::integral_constant<int, cuda::LARGEST_ORDER>());
}

// Cuts a list of matrices into launches of up to LIMIT and calls f(order, first, count) for each. Large orders come first,
// so that none begins when the others are done.
template <size_t LIMIT, typename Matrix, typename Order, typename Function>
void for_each_launch(std::vector<Matrix> list, Order order_of, Function f) {
  std::stable_sort(list.begin(), list.end(), [&](const auto& a, const auto& b) { return order_of(a) > order_of(b); });
  for (size_t begin = 0; begin < list.size(); begin += LIMIT)
    for_order(order_of(list[begin]),
              [&](auto order) { f(order, &list[begin], std::min(LIMIT, list.size() - begin)); });
}

inline int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// At most about as many thread blocks as fill the current device, for kernels that prepare before they walk over tiles.
inline int64_t resident_grid(int64_t wanted) {
  constexpr int64_t blocks_per_multiprocessor = 8;
  int device = 0, multiprocessors = 0;
  require_success(cudaGetDevice(&device), "the current CUDA device is unknown");
  require_success(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
                  "the size of the CUDA device is unknown");
  return std::min(wanted, multiprocessors * blocks_per_multiprocessor);
}

inline bool aligned_to_16(std::initializer_list<const void*> arrays) {
  return std::all_of(arrays.begin(), arrays.end(),
                     [](const void* array) { return reinterpret_cast<uintptr_t>(array) % 16 == 0; });
}

}  // namespace kpop
