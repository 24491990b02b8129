// Barriers, fences and atomics.
#pragma once

#include <type_traits>

#include "block.h"

inline void __syncthreads(EMULATION_CALLER) {
  emulation::block.wait_at_barrier({"__syncthreads", file, line}, 0);
}
inline int __syncthreads_count(int predicate, EMULATION_CALLER) {
  emulation::block.wait_at_barrier({"__syncthreads_count", file, line}, predicate);
  return emulation::block.true_predicates();
}
inline int __syncthreads_and(int predicate, EMULATION_CALLER) {
  emulation::block.wait_at_barrier({"__syncthreads_and", file, line}, predicate);
  return emulation::block.true_predicates() == emulation::block.size();
}
inline int __syncthreads_or(int predicate, EMULATION_CALLER) {
  emulation::block.wait_at_barrier({"__syncthreads_or", file, line}, predicate);
  return emulation::block.true_predicates() != 0;
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

namespace emulation {

// Replaces *address by operation(*address) and returns what was there.
template <typename T, typename Operation>
T exchange_with(T* address, Operation operation) {
  const T old = *address;
  *address = operation(old);
  return old;
}

// The hardware has no atomics on types other than these.
template <typename T>
constexpr bool is_atomic_integer =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>;
template <typename T>
using Same = std::common_type_t<T>;  // the operand takes the type of the address

}  // namespace emulation

#define EMULATION_ATOMIC(name, condition, expression)                                                  \
  template <typename T>                                                                                \
  T name(T* address, emulation::Same<T> value) {                                                       \
    static_assert(condition, #name " is not defined for this type");                                   \
    return emulation::exchange_with(address, [=]([[maybe_unused]] T old) -> T { return expression; }); \
  }

EMULATION_ATOMIC(atomicAdd, emulation::is_atomic_integer<T> || std::is_floating_point_v<T>, old + value)
EMULATION_ATOMIC(atomicSub, emulation::is_atomic_integer<T>, old - value)
EMULATION_ATOMIC(atomicMin, emulation::is_atomic_integer<T> || (std::is_same_v<T, long long>),
                 value < old ? value : old)
EMULATION_ATOMIC(atomicMax, emulation::is_atomic_integer<T> || (std::is_same_v<T, long long>),
                 old < value ? value : old)
EMULATION_ATOMIC(atomicAnd, emulation::is_atomic_integer<T>, old& value)
EMULATION_ATOMIC(atomicOr, emulation::is_atomic_integer<T>, old | value)
EMULATION_ATOMIC(atomicXor, emulation::is_atomic_integer<T>, old ^ value)
EMULATION_ATOMIC(atomicExch, emulation::is_atomic_integer<T> || (std::is_same_v<T, float>), value)
#undef EMULATION_ATOMIC

template <typename T>
T atomicCAS(T* address, emulation::Same<T> expected, emulation::Same<T> value) {
  static_assert(emulation::is_atomic_integer<T> || std::is_same_v<T, unsigned short>,
                "atomicCAS is not defined for this type");
  return emulation::exchange_with(address, [=](T old) { return old == expected ? value : old; });
}
