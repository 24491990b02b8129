// Passes over elements that lie next to each other: a thread has four, 256 apart.
#include "exact.metal"

constant constexpr uint kPassElements = 4;
constant constexpr uint kPassThreads = 256;

// Element `i` of a thread's.
static inline ulong pass_element(uint group, uint thread_id, uint i) {
  return (ulong(group) * kPassElements + i) * kPassThreads + thread_id;
}
