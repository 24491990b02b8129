// The part of CUDA's runtime that csrc/cuda/launch.h calls. A launch runs at once, in the order that was chosen; the
// names of the kernels that ran are kept.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "grid.h"

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

namespace emulation {

struct Runtime {
  // So few that thread blocks which stay walk over several tiles.
  static constexpr int multiprocessors = 1;

  Order order = Order::forward;
  std::uint64_t seed = 0;
  std::vector<std::string> launches;
};

inline Runtime runtime;

// A kernel's C++ name without its parameters. Kernels are exported where this is asked.
inline std::string kernel_name(const void* kernel) {
  Dl_info found;
  if (!dladdr(kernel, &found) || !found.dli_sname) return "?";
  char* demangled = abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, nullptr);
  const std::string name = demangled ? demangled : found.dli_sname;
  std::free(demangled);
  // The name of a template's instance begins with its result.
  const std::size_t begin = name.rfind("void ", 0) == 0 ? 5 : 0;
  return name.substr(begin, name.find('(') - begin);
}

}  // namespace emulation

inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = emulation::Runtime::multiprocessors;
  return cudaSuccess;
}

inline cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  const emulation::LaunchShape shape = {{config->gridDim.x, config->gridDim.y, config->gridDim.z},
                                        {config->blockDim.x, config->blockDim.y, config->blockDim.z},
                                        config->dynamicSmemBytes,
                                        static_cast<std::int32_t>(emulation::runtime.order),
                                        emulation::runtime.seed};
  emulation::runtime.launches.push_back(emulation::kernel_name(reinterpret_cast<const void*>(kernel)));
  emulation::run_grid(shape, [&] { std::apply(kernel, values); });
  return cudaSuccess;
}
