// Simdgroup operations over the active lanes: those that have not returned from the kernel.
#pragma once

#include "functions.h"
#include "threadgroup.h"

namespace emulation {

// What all lanes of a simdgroup posted to one operation, seen by one lane.
template <class T>
class Lanes {
 public:
  static Lanes exchange(T own, Site site) {
    static_assert(sizeof(T) <= lane_bytes);
    Threadgroup& group = threadgroup_state;
    std::memcpy(group.current().posted.bytes, &own, sizeof(T));
    group.wait(State::at_simd_operation, site);
    return Lanes(group.active_lanes(), group.thread_index() % simd_width);
  }

  uint active() const { return active_; }
  uint own_lane() const { return lane_; }
  bool is_active(uint lane) const { return lane < simd_width && (active_ >> lane & 1u); }

  // The value of an inactive lane is undefined in Metal; here every bit of it is set.
  T operator[](uint lane) const {
    T value;
    if (is_active(lane)) {
      std::memcpy(&value, threadgroup_state.exchanged(lane).bytes, sizeof(T));
    } else {
      std::memset(&value, 0xFF, sizeof(T));
    }
    return value;
  }

  // Metal leaves the order of a reduction open, so the schedules use different ones.
  template <class F>
  T reduce(F combine) const {
    const bool descending = threadgroup_state.order != Order::forward;
    bool first = true;
    T result{};
    for (uint i = 0; i < simd_width; ++i) {
      const uint lane = descending ? simd_width - 1 - i : i;
      if (!is_active(lane)) continue;
      result = first ? (*this)[lane] : T(combine(result, (*this)[lane]));
      first = false;
    }
    return result;
  }

  // Combines the active lanes below `end`, starting with `initial`.
  template <class F>
  T scan(uint end, T initial, F combine) const {
    for (uint lane = 0; lane < end; ++lane)
      if (is_active(lane)) initial = T(combine(initial, (*this)[lane]));
    return initial;
  }

 private:
  Lanes(uint active, uint lane) : active_(active), lane_(lane) {}
  uint active_, lane_;
};

template <class T>
inline Lanes<T> exchange(T own, Site site) {
  static_assert(sizeof(element_t<T>) <= 4 && !std::is_same_v<element_t<T>, bfloat>,
                "simdgroup functions take no 64-bit type and no bfloat");
  return Lanes<T>::exchange(own, site);
}


}  // namespace emulation

namespace metal {

#define EMULATION_SITE emulation::Site site = emulation::Site::here()

#define EMULATION_REDUCTION(name, expression)                                      \
  template <class T>                                                               \
  inline T name(T value, EMULATION_SITE) {                                         \
    return emulation::exchange(value, site).reduce([](T a, T b) { return expression; }); \
  }
EMULATION_REDUCTION(simd_sum, a + b)
EMULATION_REDUCTION(simd_product, a * b)
EMULATION_REDUCTION(simd_min, min(a, b))
EMULATION_REDUCTION(simd_max, max(a, b))
EMULATION_REDUCTION(simd_and, a & b)
EMULATION_REDUCTION(simd_or, a | b)
EMULATION_REDUCTION(simd_xor, a ^ b)
#undef EMULATION_REDUCTION

#define EMULATION_PREFIX(name, identity, expression)                                             \
  template <class T>                                                                             \
  inline T simd_prefix_inclusive_##name(T value, EMULATION_SITE) {                               \
    const auto lanes = emulation::exchange(value, site);                                         \
    return lanes.scan(lanes.own_lane() + 1, T(identity), [](T a, T b) { return expression; });   \
  }                                                                                              \
  template <class T>                                                                             \
  inline T simd_prefix_exclusive_##name(T value, EMULATION_SITE) {                               \
    const auto lanes = emulation::exchange(value, site);                                         \
    return lanes.scan(lanes.own_lane(), T(identity), [](T a, T b) { return expression; });       \
  }
EMULATION_PREFIX(sum, 0, a + b)
EMULATION_PREFIX(product, 1, a * b)
#undef EMULATION_PREFIX

template <class T>
inline T simd_shuffle(T value, ushort lane, EMULATION_SITE) {
  return emulation::exchange(value, site)[lane];
}
template <class T>
inline T simd_broadcast(T value, ushort lane, EMULATION_SITE) {
  return emulation::exchange(value, site)[lane];
}
template <class T>
inline T simd_broadcast_first(T value, EMULATION_SITE) {
  const auto lanes = emulation::exchange(value, site);
  return lanes[__builtin_ctz(lanes.active())];
}
template <class T>
inline T simd_shuffle_xor(T value, ushort mask, EMULATION_SITE) {
  const auto lanes = emulation::exchange(value, site);
  return lanes[lanes.own_lane() ^ mask];
}
// Lanes at the end keep their own value: the shift does not wrap around.
template <class T>
inline T simd_shuffle_down(T value, ushort delta, EMULATION_SITE) {
  const auto lanes = emulation::exchange(value, site);
  const uint source = lanes.own_lane() + delta;
  return source < emulation::simd_width ? lanes[source] : value;
}
template <class T>
inline T simd_shuffle_up(T value, ushort delta, EMULATION_SITE) {
  const auto lanes = emulation::exchange(value, site);
  return lanes.own_lane() >= delta ? lanes[lanes.own_lane() - delta] : value;
}
template <class T>
inline T simd_shuffle_rotate_down(T value, ushort delta, EMULATION_SITE) {
  const auto lanes = emulation::exchange(value, site);
  return lanes[(lanes.own_lane() + delta) % emulation::simd_width];
}
template <class T>
inline T simd_shuffle_rotate_up(T value, ushort delta, EMULATION_SITE) {
  const auto lanes = emulation::exchange(value, site);
  return lanes[(lanes.own_lane() - delta) % emulation::simd_width];
}

class simd_vote {
 public:
  using vote_t = ulong;
  explicit simd_vote(vote_t votes, vote_t active) : votes_(votes), active_(active) {}
  explicit operator vote_t() const { return votes_; }
  bool all() const { return votes_ == active_; }
  bool any() const { return votes_ != 0; }

 private:
  vote_t votes_, active_;
};

inline simd_vote simd_ballot(bool vote, EMULATION_SITE) {
  const auto lanes = emulation::exchange(vote, site);
  ulong votes = 0;
  for (uint lane = 0; lane < emulation::simd_width; ++lane)
    if (lanes.is_active(lane) && lanes[lane]) votes |= 1ul << lane;
  return simd_vote(votes, lanes.active());
}
inline simd_vote simd_active_threads_mask(EMULATION_SITE) { return simd_ballot(true, site); }
inline bool simd_any(bool vote, EMULATION_SITE) { return simd_ballot(vote, site).any(); }
inline bool simd_all(bool vote, EMULATION_SITE) { return simd_ballot(vote, site).all(); }
inline bool simd_is_first(EMULATION_SITE) {
  const auto lanes = emulation::exchange(true, site);
  return lanes.own_lane() == uint(__builtin_ctz(lanes.active()));
}

}  // namespace metal
