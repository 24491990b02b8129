// The choice of an instruction set by what the processor and its operating system support.
#include <cstring>
#include <initializer_list>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#include "kernels.h"

namespace kpop::cpu {
namespace {

#ifdef KPOP_X86
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

}  // namespace

const Kernels* find_kernels(const char* name) {
  if (!std::strcmp(name, "baseline")) return &baseline::kernels;
#ifdef KPOP_X86
  if (!std::strcmp(name, "avx2") && has_avx2()) return &avx2::kernels;
  if (!std::strcmp(name, "avx512") && has_avx512()) return &avx512::kernels;
#endif
  return nullptr;
}

const Kernels& best_kernels() {
  static const Kernels& best = []() -> const Kernels& {
    for (const char* name : {"avx512", "avx2"})
      if (const Kernels* found = find_kernels(name)) return *found;
    return baseline::kernels;
  }();
  return best;
}

int64_t last_level_cache_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  static const int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return bytes;
#endif
  return int64_t{32} << 20;
}

}  // namespace kpop::cpu
