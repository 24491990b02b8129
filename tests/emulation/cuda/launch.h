// What an emulated module exports: its kernels, their signatures, and the text of the last error.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "checks.h"
#include "float16_types.h"
#include "grid.h"

#define EMULATION_EXPORT extern "C" __attribute__((visibility("default")))

namespace emulation {

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
