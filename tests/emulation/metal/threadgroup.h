// One threadgroup: its threads are fibers; barriers and simdgroup operations are where they switch.
//
// A thread runs until it reaches a barrier, a simdgroup operation or its end. A simdgroup operation is
// released when every live lane of the simdgroup has reached the same one, a barrier when every thread of
// the threadgroup has. What can never be released is reported as a fault.
// Threadgroups run one after another, so atomics need no more than plain reads and writes.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "fiber.h"
#include "types.h"

namespace emulation {

constexpr uint simd_width = 32;
constexpr uint max_threads_per_threadgroup = 1024;
constexpr std::size_t lane_bytes = 16;

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Where in the kernel's source an operation stands. As a default argument it captures the caller's place.
struct Site {
  uint line = 0, column = 0;
  static Site here(uint line = __builtin_LINE(), uint column = __builtin_COLUMN()) { return {line, column}; }
  bool operator==(Site other) const { return line == other.line && column == other.column; }
};

enum class Order : int { forward, reversed, shuffled };

// A generator for std::shuffle; the header <random> would be half of a compilation.
struct Xorshift {
  using result_type = uint;
  static constexpr uint min() { return 1u; }
  static constexpr uint max() { return ~0u; }
  uint operator()() {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
  }
  uint state = 1u;
};
enum class State : unsigned char { ready, at_barrier, at_simd_operation, finished };

struct LaneValue {
  alignas(lane_bytes) unsigned char bytes[lane_bytes];
};

struct Thread {
  Fiber fiber;
  uint3 position;
  State state;
  Site site;
  LaneValue posted;
};

// A variable declared `threadgroup`. Every bit is set before a threadgroup starts, which reads as NaN or
// -1; the bands around it show writes past its ends.
class SharedVariable {
 public:
  unsigned char* data(std::size_t bytes) {
    if (memory_ == nullptr) {
      bytes_ = bytes;
      memory_.reset(new (std::align_val_t{band}) unsigned char[bytes + 2 * band]);
      poison();
    }
    return memory_.get() + band;
  }
  void poison() {
    if (memory_ == nullptr) return;
    std::memset(memory_.get(), guard, bytes_ + 2 * band);
    std::memset(memory_.get() + band, 0xFF, bytes_);
  }
  bool overrun() const {
    if (memory_ == nullptr) return false;
    for (std::size_t i = 0; i < band; ++i)
      if (memory_[i] != guard || memory_[band + bytes_ + i] != guard) return true;
    return false;
  }

 private:
  struct Free {
    void operator()(unsigned char* memory) const { ::operator delete[](memory, std::align_val_t{band}); }
  };
  static constexpr std::size_t band = 256;
  static constexpr unsigned char guard = 0xA5;
  std::unique_ptr<unsigned char[], Free> memory_;
  std::size_t bytes_ = 0;
};

class Threadgroup {
 public:
  uint3 grid_size, group_size, groups_per_grid;  // of the dispatch
  uint3 group_position, size;                    // of this threadgroup: smaller at the edges of the grid
  void (*body)(void*) = nullptr;
  void* body_context = nullptr;
  Order order = Order::forward;

  void run();

  Thread& current() { return threads_[current_]; }
  uint thread_index() const { return current_; }
  uint simdgroup_count() const { return (count_ + simd_width - 1) / simd_width; }
  uint active_lanes() const { return active_[current_ / simd_width]; }
  const LaneValue& exchanged(uint lane) const { return exchanged_[(current_ & ~(simd_width - 1)) + lane]; }

  // The current thread waits for the others; returns when the operation is released.
  void wait(State state, Site site) {
    current().state = state;
    current().site = site;
    current().fiber.suspend();
  }

  SharedVariable& shared_variable(uint slot) {
    if (slot >= shared_.size()) shared_.resize(slot + 1);
    return shared_[slot];
  }

  // Keeps the first thing found wrong while threads run; run() raises it.
  void report(const std::string& message) {
    if (report_.empty()) report_ = message;
  }

  void shuffle(std::vector<uint>& sequence) { std::shuffle(sequence.begin(), sequence.end(), random_); }

 private:
  static void thread_main();
  void start_threads();
  bool run_simdgroup(uint first, uint last);
  bool run_ready_threads(uint first, uint last);
  bool release_simd_operation(uint first, uint last);
  void release_barrier();
  std::vector<uint> ordered(uint first, uint last);
  void raise_report() {
    if (report_.empty()) return;
    Fault fault(report_);
    report_.clear();
    throw fault;
  }

  std::vector<Thread> threads_;
  uint count_ = 0, current_ = 0;
  LaneValue exchanged_[max_threads_per_threadgroup];
  uint active_[max_threads_per_threadgroup / simd_width];
  std::vector<SharedVariable> shared_;
  std::string report_;
  Xorshift random_;
};

inline Threadgroup threadgroup_state;

inline std::string describe(Site site) { return "line " + std::to_string(site.line); }

inline void Threadgroup::thread_main() {
  Threadgroup& group = threadgroup_state;
  group.body(group.body_context);
  group.current().state = State::finished;
  group.current().fiber.suspend();
}

inline void Threadgroup::start_threads() {
  count_ = size.x * size.y * size.z;
  if (threads_.size() < count_) threads_.resize(count_);
  for (uint i = 0; i < count_; ++i) {
    threads_[i].fiber.reset(&Threadgroup::thread_main);
    threads_[i].state = State::ready;
    threads_[i].position = uint3{i % size.x, i / size.x % size.y, i / (size.x * size.y)};
  }
}

inline std::vector<uint> Threadgroup::ordered(uint first, uint last) {
  std::vector<uint> sequence(last - first);
  for (uint i = first; i < last; ++i) sequence[i - first] = i;
  if (order == Order::reversed) std::reverse(sequence.begin(), sequence.end());
  if (order == Order::shuffled) shuffle(sequence);
  return sequence;
}

inline void Threadgroup::run() {
  report_.clear();  // left by a dispatch that ended in another fault
  for (SharedVariable& variable : shared_) variable.poison();
  start_threads();
  const auto finished = [](const Thread& thread) { return thread.state == State::finished; };
  while (!std::all_of(threads_.begin(), threads_.begin() + count_, finished)) {
    bool progress = false;
    for (uint s : ordered(0, simdgroup_count()))
      progress |= run_simdgroup(s * simd_width, std::min((s + 1) * simd_width, count_));
    if (!progress) release_barrier();
  }
  for (const SharedVariable& variable : shared_)
    if (variable.overrun()) report("a write outside a threadgroup variable");
  raise_report();
}

// A simdgroup goes as far as it can before the next one starts: a barrier that is missing between them shows.
// The shuffled order interleaves them operation by operation instead.
inline bool Threadgroup::run_simdgroup(uint first, uint last) {
  bool progress = false;
  for (;;) {
    progress |= run_ready_threads(first, last);
    const bool released = release_simd_operation(first, last);
    progress |= released;
    if (!released || order == Order::shuffled) return progress;
  }
}

inline bool Threadgroup::run_ready_threads(uint first, uint last) {
  bool any = false;
  for (uint i : ordered(first, last)) {
    if (threads_[i].state != State::ready) continue;
    any = true;
    current_ = i;
    threads_[i].fiber.resume();
    raise_report();
  }
  return any;
}

inline bool Threadgroup::release_simd_operation(uint first, uint last) {
  const Thread* waiting = nullptr;
  for (uint i = first; i < last; ++i) {
    if (threads_[i].state == State::ready || threads_[i].state == State::at_barrier) return false;
    if (threads_[i].state != State::at_simd_operation) continue;
    if (waiting != nullptr && !(waiting->site == threads_[i].site))
      throw Fault("lanes of one simdgroup are at different simdgroup operations: " + describe(waiting->site) +
                  " and " + describe(threads_[i].site));
    waiting = &threads_[i];
  }
  if (waiting == nullptr) return false;
  uint mask = 0;
  for (uint i = first; i < last; ++i) {
    if (threads_[i].state != State::at_simd_operation) continue;
    exchanged_[i] = threads_[i].posted;
    threads_[i].state = State::ready;
    mask |= 1u << (i - first);
  }
  active_[first / simd_width] = mask;
  return true;
}

inline void Threadgroup::release_barrier() {
  const Thread* at_barrier = nullptr;
  for (uint i = 0; i < count_; ++i) {
    const Thread& thread = threads_[i];
    if (thread.state == State::at_simd_operation)
      throw Fault("simdgroup operation in divergent control flow, " + describe(thread.site) +
                  ": other lanes of the simdgroup are at a threadgroup_barrier");
    if (thread.state != State::at_barrier) continue;
    if (at_barrier != nullptr && !(at_barrier->site == thread.site))
      throw Fault("threads of one threadgroup are at different barriers: " + describe(at_barrier->site) +
                  " and " + describe(thread.site));
    at_barrier = &thread;
  }
  for (uint i = 0; i < count_; ++i) {
    if (threads_[i].state == State::finished)
      throw Fault("threadgroup_barrier in " + describe(at_barrier->site) + " is not reached by all threads");
    threads_[i].state = State::ready;
  }
}

// The storage behind `threadgroup T name;`, which the translation turns into a reference.
template <class T>
inline EMULATION_THREADGROUP T& threadgroup_memory(uint slot) {
  return *(EMULATION_THREADGROUP T*)(void*)threadgroup_state.shared_variable(slot).data(sizeof(T));
}

}  // namespace emulation

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
inline mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }

inline void threadgroup_barrier(mem_flags, emulation::Site site = emulation::Site::here()) {
  emulation::threadgroup_state.wait(emulation::State::at_barrier, site);
}
inline void simdgroup_barrier(mem_flags, emulation::Site site = emulation::Site::here()) {
  emulation::threadgroup_state.wait(emulation::State::at_simd_operation, site);
}

}  // namespace metal
