// Dispatches a kernel over a grid and hands the values of position attributes to it.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "threadgroup.h"

namespace emulation {

// Mirrored by ctypes in metal_emulator.py.
struct Dispatch {
  uint threads[3], group[3];
  int order;
  int flush_subnormals;
};

// Subnormal operands and results count as zero while an object of this class lives.
class FlushSubnormals {
 public:
  explicit FlushSubnormals(bool enable) : saved_(read()) {
    if (enable) write(saved_ | flush_bits);
  }
  ~FlushSubnormals() { write(saved_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr ulong flush_bits = 0x8040;  // flush results to zero, treat operands as zero
  static ulong read() { return _mm_getcsr(); }
  static void write(ulong control) { _mm_setcsr(uint(control)); }
#else
  static constexpr ulong flush_bits = 1ul << 24;
  static ulong read() {
    ulong control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void write(ulong control) { asm volatile("msr fpcr, %0" : : "r"(control)); }
#endif
  ulong saved_;
};

inline std::string last_fault;

// A position attribute as the type the kernel declares it with.
template <class T>
inline T position_as(uint3 position) {
  using E = element_t<T>;
  if constexpr (vector_size<T> == 3) return T{E(position.x), E(position.y), E(position.z)};
  else if constexpr (vector_size<T> == 2) return T{E(position.x), E(position.y)};
  else return T(position.x);
}

inline void run_groups(Threadgroup& group) {
  const uint3 count = group.groups_per_grid;
  std::vector<uint> sequence(count.x * count.y * count.z);
  for (uint i = 0; i < sequence.size(); ++i) sequence[i] = i;
  if (group.order == Order::reversed) std::reverse(sequence.begin(), sequence.end());
  if (group.order == Order::shuffled) group.shuffle(sequence);
  for (uint i : sequence) {
    group.group_position = uint3{i % count.x, i / count.x % count.y, i / (count.x * count.y)};
    const uint3 rest = group.grid_size - group.group_position * group.group_size;
    for (int axis = 0; axis < 3; ++axis) group.size[axis] = std::min(group.group_size[axis], rest[axis]);
    group.run();
  }
}

// Returns 0, or 1 and leaves a sentence in last_fault.
template <class Body>
inline int launch(const Dispatch& dispatch, Body body) {
  const FlushSubnormals flush(dispatch.flush_subnormals != 0);
  Threadgroup& group = threadgroup_state;
  group.grid_size = uint3{dispatch.threads[0], dispatch.threads[1], dispatch.threads[2]};
  group.group_size = uint3{dispatch.group[0], dispatch.group[1], dispatch.group[2]};
  group.groups_per_grid = (group.grid_size + group.group_size - 1u) / group.group_size;
  group.order = Order(dispatch.order);
  group.body = [](void* context) { (*static_cast<Body*>(context))(); };
  group.body_context = &body;
  try {
    run_groups(group);
    return 0;
  } catch (const Fault& fault) {
    last_fault = fault.what();
    return 1;
  }
}

}  // namespace emulation

#define EMULATION_EXPORT extern "C" __attribute__((used, visibility("default")))

EMULATION_EXPORT const char* emulation_last_fault() { return emulation::last_fault.c_str(); }

// The sanitizer calls these where the result is undefined. The thread does not go on, the dispatch fails.
#define EMULATION_UNDEFINED(name, message)                                                     \
  extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_##name##_minimal() {    \
    emulation::threadgroup_state.report(message);                                              \
    emulation::threadgroup_state.current().fiber.suspend();                                    \
  }
EMULATION_UNDEFINED(float_cast_overflow, "a float is converted to an integer type that cannot hold it")
EMULATION_UNDEFINED(shift_out_of_bounds, "a shift by the width of the type or more")
EMULATION_UNDEFINED(out_of_bounds, "an index outside an array")
EMULATION_UNDEFINED(divrem_overflow, "an integer division by zero, or one that overflows")
EMULATION_UNDEFINED(add_overflow, "a signed addition overflows")
EMULATION_UNDEFINED(sub_overflow, "a signed subtraction overflows")
EMULATION_UNDEFINED(mul_overflow, "a signed multiplication overflows")
EMULATION_UNDEFINED(negate_overflow, "a signed negation overflows")
#undef EMULATION_UNDEFINED
