// 16 random bits for each of consecutive elements, several calls of Philox at a time.
#pragma once
#include "common/philox.h"
#include "kernels.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

// What does not change from call to call.
struct RoundKeys : PhiloxKeys {
  uint32_t step, stream;
};

inline RoundKeys round_keys(const RandomStream& random) {
  return {philox_keys(random.seed), random.step, random.stream};
}

inline void random16_scalar(const RoundKeys& keys, uint64_t call, int calls, uint16_t* out) {
  for (int i = 0; i < calls; ++i) {
    const uint64_t c = call + static_cast<uint64_t>(i);
    const Philox4 words =
        philox4(static_cast<uint32_t>(c), static_cast<uint32_t>(c >> 32), keys.step, keys.stream, keys);
    for (int entry = 0; entry < 8; ++entry) out[8 * i + entry] = static_cast<uint16_t>(philox_entry(words, entry));
  }
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA

#if defined(__AVX512BW__)
#include "random16_avx512.h"
#elif defined(__AVX2__)
#include "random16_avx2.h"
#else
namespace kpop::cpu::KPOP_ISA {
namespace {
constexpr int CALLS_AT_ONCE = 1;
inline void random16_group(const RoundKeys& keys, uint64_t call, uint16_t* out) {
  random16_scalar(keys, call, CALLS_AT_ONCE, out);
}
}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
#endif

namespace kpop::cpu::KPOP_ISA {
namespace {

// The elements that a buffer must hold beyond those asked for: part of a call before them, part of a group after.
constexpr int RANDOM_SLACK = 8 * (CALLS_AT_ONCE + 1);

// Writes the random numbers of elements first ... first + count - 1 and returns where they begin.
inline const uint16_t* random16(const RoundKeys& keys, uint64_t first, int64_t count, uint16_t* buffer) {
  const int skipped = static_cast<int>(first & 7);
  const uint64_t call = first >> 3;
  const int64_t calls = (skipped + count + 7) >> 3;
  for (int64_t done = 0; done < calls; done += CALLS_AT_ONCE) {
    const uint64_t group = call + static_cast<uint64_t>(done);
    // The groups take the high word of their counters as constant.
    const bool carries = (group >> 32) != ((group + CALLS_AT_ONCE - 1) >> 32);
    if (carries)
      random16_scalar(keys, group, CALLS_AT_ONCE, buffer + 8 * done);
    else
      random16_group(keys, group, buffer + 8 * done);
  }
  return buffer + skipped;
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
