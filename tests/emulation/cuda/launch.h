// What an emulated module exports: its kernels, their signatures, and the text of the last error.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "checks.h"
#include "float16_types.h"
#include "shared_memory.h"

#define EMULATION_EXPORT extern "C" __attribute__((visibility("default")))

namespace emulation {

// Mirrored by a ctypes.Structure in cuda_emulator.py.
struct LaunchShape {
  std::uint32_t grid[3];
  std::uint32_t block[3];
  std::uint64_t dynamic_shared_bytes;
  std::int32_t order;
  std::uint64_t seed;
};

inline std::string last_error;

// The element type behind a pointer, by its numpy name; vectors count as their elements.
template <typename T>
std::string type_name() {
  if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, __half2>)
    return "float16";
  else if constexpr (std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __nv_bfloat162>)
    return "bfloat16";
  else if constexpr (std::is_same_v<T, bool>)
    return "bool";
  else if constexpr (std::is_floating_point_v<T>)
    return "float" + std::to_string(8 * sizeof(T));
  else if constexpr (std::is_integral_v<T>)
    return (std::is_signed_v<T> ? "int" : "uint") + std::to_string(8 * sizeof(T));
  else if constexpr (std::is_void_v<T>)
    return "void";
  else
    return "struct" + std::to_string(sizeof(T));
}

template <typename T>
std::string parameter_name() {
  if constexpr (std::is_pointer_v<T>) {
    using Target = std::remove_pointer_t<T>;
    return (std::is_const_v<Target> ? "const " : "") + type_name<std::remove_cv_t<Target>>() + "*";
  } else {
    return type_name<T>();
  }
}

template <typename... Parameters>
std::string signature(void (*)(Parameters...)) {
  std::string names;
  ((names += (names.empty() ? "" : ",") + parameter_name<Parameters>()), ...);
  return names;
}

inline void check_shape(const LaunchShape& shape) {
  const std::uint64_t threads = std::uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  if (threads < 1 || threads > 1024 || shape.block[2] > 64)
    throw KernelError(Fault::bad_launch, "a block has 1 to 1024 threads and at most 64 in z, not " +
                                             text({shape.block[0], shape.block[1], shape.block[2]}));
  if (!shape.grid[0] || !shape.grid[1] || !shape.grid[2] || shape.grid[0] > 0x7fffffffu ||
      shape.grid[1] > 65535 || shape.grid[2] > 65535)
    throw KernelError(Fault::bad_launch, "a grid has 1 to (2147483647, 65535, 65535) blocks, not " +
                                             text({shape.grid[0], shape.grid[1], shape.grid[2]}));
  if (std::uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2] > 0x7fffffffu)
    throw KernelError(Fault::bad_launch, "the emulation runs at most 2147483647 blocks");
}

inline void run_grid(const LaunchShape& shape, std::function<void()> body) {
  check_shape(shape);
  gridDim = {shape.grid[0], shape.grid[1], shape.grid[2]};
  blockDim = {shape.block[0], shape.block[1], shape.block[2]};
  const auto threads = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
  block.prepare(threads, static_cast<Order>(shape.order), shape.seed, std::move(body));
  const StaticSharedMemory fixed = StaticSharedMemory::find();
  DynamicSharedMemory dynamic(shape.dynamic_shared_bytes);
  for (int linear : block.ordered(static_cast<int>(gridDim.x * gridDim.y * gridDim.z))) {
    const auto index = static_cast<unsigned>(linear);
    blockIdx = {index % gridDim.x, index / gridDim.x % gridDim.y, index / (gridDim.x * gridDim.y)};
    std::memset(fixed.data, poison_byte, fixed.bytes);
    dynamic.poison();
    block.run();
    dynamic.check_guard();
  }
}

template <typename... Parameters, std::size_t... I>
void run_kernel(void (*kernel)(Parameters...), void* const* arguments, const LaunchShape& shape,
                std::index_sequence<I...>) {
  run_grid(shape, [=] { kernel(*static_cast<std::remove_reference_t<Parameters>*>(arguments[I])...); });
}

// Runs the kernel on arguments given by address. Returns the fault's number; the text is in last_error.
template <typename... Parameters>
int launch(void (*kernel)(Parameters...), void* const* arguments, const LaunchShape& shape) {
  try {
    run_kernel(kernel, arguments, shape, std::index_sequence_for<Parameters...>{});
    return static_cast<int>(Fault::none);
  } catch (const KernelError& error) {
    last_error = error.what();
    return static_cast<int>(error.fault);
  }
}

}  // namespace emulation

EMULATION_EXPORT const char* emulation_last_error() { return emulation::last_error.c_str(); }

// Exports kernel number `index` of a module; the kernel may contain commas.
#define EMULATION_EXPORT_KERNEL(index, ...)                                            \
  EMULATION_EXPORT int emulation_launch_##index(void* const* arguments,                \
                                                const emulation::LaunchShape* shape) { \
    return emulation::launch(&__VA_ARGS__, arguments, *shape);                         \
  }                                                                                    \
  EMULATION_EXPORT const char* emulation_signature_##index() {                         \
    static const std::string names = emulation::signature(&__VA_ARGS__);               \
    return names.c_str();                                                              \
  }
