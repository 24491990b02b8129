// Atomic operations. Threads switch only at barriers and simdgroup operations, so plain accesses are atomic.
#pragma once

#include "functions.h"

namespace metal {

enum memory_order { memory_order_relaxed };

template <class T>
struct atomic {
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, uint> || std::is_same_v<T, bool> ||
                    std::is_same_v<T, float> || std::is_same_v<T, ulong>,
                "atomics exist for int, uint, bool, float and ulong");
  T value;
};
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_bool = atomic<bool>;
using atomic_float = atomic<float>;
using atomic_ulong = atomic<ulong>;

// The pointer type A* of an operation carries the address space of the object.
template <class T>
T atomic_value(const volatile EMULATION_DEVICE atomic<T>*);
template <class T>
T atomic_value(const volatile EMULATION_THREADGROUP atomic<T>*);
template <class A>
using atomic_value_t = decltype(atomic_value(std::declval<A*>()));

template <class A>
constexpr bool is_integer_atomic =
    std::is_same_v<atomic_value_t<A>, int> || std::is_same_v<atomic_value_t<A>, uint>;

template <class A>
inline atomic_value_t<A> atomic_load_explicit(A* object, memory_order) {
  return object->value;
}
template <class A>
inline void atomic_store_explicit(A* object, atomic_value_t<A> desired, memory_order) {
  object->value = desired;
}
template <class A>
inline atomic_value_t<A> atomic_exchange_explicit(A* object, atomic_value_t<A> desired, memory_order) {
  const auto previous = object->value;
  object->value = desired;
  return previous;
}
template <class A>
inline bool atomic_compare_exchange_weak_explicit(A* object, atomic_value_t<A>* expected,
                                                  atomic_value_t<A> desired, memory_order, memory_order) {
  const bool equal = object->value == *expected;
  if (equal) object->value = desired;
  else *expected = object->value;
  return equal;
}

#define EMULATION_ATOMIC(name, allowed, expression)                                          \
  template <class A>                                                                         \
  inline atomic_value_t<A> atomic_fetch_##name##_explicit(A* object, atomic_value_t<A> b,    \
                                                          memory_order) {                    \
    static_assert(allowed, "this atomic operation does not exist for the type");             \
    const atomic_value_t<A> a = object->value;                                               \
    object->value = expression;                                                              \
    return a;                                                                                \
  }
#define EMULATION_INTEGER_OR_FLOAT (is_integer_atomic<A> || std::is_same_v<atomic_value_t<A>, float>)
EMULATION_ATOMIC(add, EMULATION_INTEGER_OR_FLOAT, a + b)
EMULATION_ATOMIC(sub, EMULATION_INTEGER_OR_FLOAT, a - b)
EMULATION_ATOMIC(min, is_integer_atomic<A>, min(a, b))
EMULATION_ATOMIC(max, is_integer_atomic<A>, max(a, b))
EMULATION_ATOMIC(and, is_integer_atomic<A>, a & b)
EMULATION_ATOMIC(or, is_integer_atomic<A>, a | b)
EMULATION_ATOMIC(xor, is_integer_atomic<A>, a ^ b)
#undef EMULATION_INTEGER_OR_FLOAT
#undef EMULATION_ATOMIC

}  // namespace metal
