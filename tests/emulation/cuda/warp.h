// Warp collectives: shuffles, votes, matches and reductions over the lanes of a mask.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "block.h"
#include "intrinsics.h"

namespace emulation {

// Waits for the lanes of the mask, each of which publishes a value.
template <typename T>
void exchange(const Collective& collective, std::uint32_t mask, const T& value) {
  if (!(mask >> block.lane() & 1))
    block.fail(Fault::missing_lanes, collective.text() + " is called by lane " +
                                         std::to_string(block.lane()) + ", which its own mask leaves out");
  block.wait_at_warp_collective(collective, mask, Payload::of(value));
}

// Folds the values of type T that the lanes of the mask have published, from the lowest lane up.
template <typename T, typename Result, typename Operation>
Result fold(std::uint32_t mask, Result start, Operation operation) {
  for (int lane = 0; lane < warpSize; ++lane)
    if (mask >> lane & 1) start = operation(start, block.published_by<T>(lane), lane);
  return start;
}

// Every lane names the lane it reads from; only lanes of the mask have a value to read.
template <typename T>
T shuffle(const Collective& collective, std::uint32_t mask, T value, int source) {
  static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
  exchange(collective, mask, value);
  if (!(mask >> source & 1))
    block.fail(Fault::missing_lanes,
               collective.text() + " reads lane " + std::to_string(source) + ", which is not in its mask");
  return block.published_by<T>(source);
}

inline unsigned ballot(const Collective& collective, std::uint32_t mask, int predicate) {
  exchange(collective, mask, unsigned{predicate != 0});
  return fold<unsigned>(mask, 0u,
                        [](unsigned votes, unsigned vote, int lane) { return votes | vote << lane; });
}

template <typename T, typename Operation>
T reduce(const Collective& collective, std::uint32_t mask, T value, Operation operation) {
  exchange(collective, mask, value);
  const int lowest = __ffs(static_cast<int>(mask)) - 1;
  return fold<T>(mask & (mask - 1), block.published_by<T>(lowest),
                 [=](T a, T b, int) { return operation(a, b); });
}

}  // namespace emulation

inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATION_CALLER) {
  emulation::exchange({"__syncwarp", file, line}, mask, 0);
}
inline unsigned __activemask() = delete;  // what it returns is up to the hardware's scheduling

// Each form reads its own value where the source would leave the segment of `width` lanes.
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize, EMULATION_CALLER) {
  const int segment = emulation::block.lane() & ~(width - 1);
  return emulation::shuffle({"__shfl_sync", file, line}, mask, value, segment | (source & (width - 1)));
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize, EMULATION_CALLER) {
  const int lane = emulation::block.lane();
  const int source = lane - static_cast<int>(delta);
  const bool inside = source >= (lane & ~(width - 1));
  return emulation::shuffle({"__shfl_up_sync", file, line}, mask, value, inside ? source : lane);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize, EMULATION_CALLER) {
  const int lane = emulation::block.lane();
  const int source = lane + static_cast<int>(delta);
  const bool inside = source <= (lane | (width - 1));
  return emulation::shuffle({"__shfl_down_sync", file, line}, mask, value, inside ? source : lane);
}
// The exclusive-or form may read a segment below its own, but not one above.
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize, EMULATION_CALLER) {
  const int lane = emulation::block.lane();
  const int source = lane ^ lane_mask;
  const bool inside = source <= (lane | (width - 1));
  return emulation::shuffle({"__shfl_xor_sync", file, line}, mask, value, inside ? source : lane);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATION_CALLER) {
  return emulation::ballot({"__ballot_sync", file, line}, mask, predicate);
}
inline int __any_sync(unsigned mask, int predicate, EMULATION_CALLER) {
  return emulation::ballot({"__any_sync", file, line}, mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMULATION_CALLER) {
  return emulation::ballot({"__all_sync", file, line}, mask, predicate) == mask;
}

template <typename T>
unsigned __match_any_sync(unsigned mask, T value, EMULATION_CALLER) {
  emulation::exchange({"__match_any_sync", file, line}, mask, value);
  return emulation::fold<T>(mask, 0u, [=](unsigned equal, T other, int lane) {
    return equal | unsigned{!std::memcmp(&value, &other, sizeof(T))} << lane;
  });
}

#define EMULATION_REDUCE(name, T, expression)                                                             \
  inline T name(unsigned mask, T value, EMULATION_CALLER) {                                               \
    return emulation::reduce({#name, file, line}, mask, value, [](T a, T b) -> T { return expression; }); \
  }

EMULATION_REDUCE(__reduce_add_sync, unsigned, a + b)
EMULATION_REDUCE(__reduce_min_sync, unsigned, b < a ? b : a)
EMULATION_REDUCE(__reduce_max_sync, unsigned, a < b ? b : a)
EMULATION_REDUCE(__reduce_add_sync, int,
                 static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
EMULATION_REDUCE(__reduce_min_sync, int, b < a ? b : a)
EMULATION_REDUCE(__reduce_max_sync, int, a < b ? b : a)
EMULATION_REDUCE(__reduce_and_sync, unsigned, a& b)
EMULATION_REDUCE(__reduce_or_sync, unsigned, a | b)
EMULATION_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef EMULATION_REDUCE
