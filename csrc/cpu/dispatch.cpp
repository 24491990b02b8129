// What the processor and its operating system support: the choice of an instruction set, the size of the cache.
#include <cstdio>
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

// The cache that a core shares with its neighbours, or 0. The C library's answer is second best: of an AMD processor
// with several such caches some versions tell the sum, many times what a core can use.
int64_t level3_cache_bytes() {
  long long kilobytes = 0;
  if (FILE* file = std::fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r")) {
    if (std::fscanf(file, "%lldK", &kilobytes) != 1) kilobytes = 0;
    std::fclose(file);
  }
  if (kilobytes > 0) return static_cast<int64_t>(kilobytes) << 10;
#ifdef _SC_LEVEL3_CACHE_SIZE
  return sysconf(_SC_LEVEL3_CACHE_SIZE);
#else
  return 0;
#endif
}

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
  static const int64_t bytes = level3_cache_bytes();
  return bytes > 0 ? bytes : int64_t{32} << 20;
}

}  // namespace kpop::cpu
