// One thread block: its threads are fibers, and they switch at barriers and warp collectives.
//
// A thread runs until it reaches a collective or its end. When none can run, every collective that all its
// members have reached is released; if there is none, the kernel has a bug, and it is reported.
// Blocks run one after another, so that atomics need no more than plain reads and writes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "thread.h"

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace emulation {

enum class Order : int { forward = 0, reversed = 1, shuffled = 2 };

class Block {
 public:
  // Readies the block for a launch of `body`; the order applies to threads and, in launch.h, to blocks.
  void prepare(int threads, Order order, std::uint64_t seed, std::function<void()> body);

  // Runs the body once for every thread of block `blockIdx`. Throws KernelError.
  void run();

  // The calling thread waits until all threads of the block have come to this barrier.
  void wait_at_barrier(const Collective& barrier, int predicate) {
    current().predicate = predicate;
    suspend(State::at_barrier, barrier);
  }

  // The calling lane gives its payload and waits until all lanes of the mask have come to this collective.
  void wait_at_warp_collective(const Collective& collective, std::uint32_t mask, const Payload& given) {
    current().mask = mask;
    current().given = given;
    suspend(State::at_warp_collective, collective);
  }

  // Ends the kernel with an error from within a thread: an exception cannot cross the fibers' stacks.
  [[noreturn]] void fail(Fault fault, const std::string& message) {
    fault_ = fault;
    fault_message_ = message + ", " + who(current());
    current().fiber.suspend();
    __builtin_unreachable();
  }

  Thread& current() { return threads_[running_]; }
  int lane() const { return running_ % warpSize; }
  int true_predicates() const { return true_predicates_; }
  int size() const { return size_; }

  // What a lane of the calling warp gave to the collective that was released last.
  template <typename T>
  T published_by(int lane) const {
    return threads_[first_lane(running_) + lane].published.as<T>();
  }

  // 0 ... count-1 in the order of the launch.
  std::vector<int> ordered(int count) {
    std::vector<int> indices(count);
    std::iota(indices.begin(), indices.end(), 0);
    if (order_ == Order::reversed) std::reverse(indices.begin(), indices.end());
    if (order_ == Order::shuffled) std::shuffle(indices.begin(), indices.end(), random_);
    return indices;
  }

 private:
  static void thread_main();
  static int first_lane(int thread) { return thread / warpSize * warpSize; }

  void suspend(State state, const Collective& collective);
  void run_ready_threads();
  bool release_warp_collectives();
  bool release_barrier();
  int first_missing_lane(int thread) const;
  bool all_exited() const;
  [[noreturn]] void report_stuck() const;
  std::string who(const Thread& thread) const;
  std::string whereabouts(int thread) const;

  std::vector<Thread> threads_;
  std::function<void()> body_;
  int size_ = 0;
  int running_ = 0;
  int true_predicates_ = 0;
  Order order_ = Order::forward;
  std::mt19937_64 random_;
  Fault fault_ = Fault::none;
  std::string fault_message_;
};

inline Block block;

inline void Block::prepare(int threads, Order order, std::uint64_t seed, std::function<void()> body) {
  size_ = threads;
  if (static_cast<int>(threads_.size()) < size_) threads_.resize(size_);
  for (unsigned i = 0; i < static_cast<unsigned>(size_); ++i)
    threads_[i].index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
  order_ = order;
  random_.seed(seed);
  body_ = std::move(body);
  fault_ = Fault::none;
}

inline void Block::run() {
  for (int i = 0; i < size_; ++i) threads_[i].restart(&Block::thread_main);
  for (;;) {
    run_ready_threads();
    if (all_exited()) return;
    if (!release_warp_collectives() && !release_barrier()) report_stuck();
  }
}

inline void Block::thread_main() {
  block.current().fiber.started();
  block.body_();
  block.current().state = State::exited;
  block.current().fiber.suspend();
  __builtin_unreachable();
}

inline void Block::suspend(State state, const Collective& collective) {
  Thread& self = current();
  self.state = state;
  self.collective = collective;
  self.fiber.suspend();
}

inline void Block::run_ready_threads() {
  for (int i : ordered(size_)) {
    Thread& thread = threads_[i];
    if (thread.state != State::ready) continue;
    running_ = i;
    threadIdx = thread.index;
    thread.fiber.resume();
    if (fault_ != Fault::none) throw KernelError(fault_, fault_message_);
    if (thread.fiber.overflowed())
      throw KernelError(Fault::out_of_bounds, "local variables overflow the emulated stack of " +
                                                  std::to_string(Fiber::usable_bytes) + " bytes, " +
                                                  who(thread));
  }
}

inline bool Block::all_exited() const {
  return std::all_of(threads_.begin(), threads_.begin() + size_,
                     [](const Thread& thread) { return thread.state == State::exited; });
}

// The first lane of the thread's mask that is not at the same collective with the same mask; -1 if none.
inline int Block::first_missing_lane(int thread) const {
  const Thread& waiting = threads_[thread];
  for (int lane = 0; lane < warpSize; ++lane) {
    if (!(waiting.mask >> lane & 1)) continue;
    const int member = first_lane(thread) + lane;
    if (member >= size_) return lane;
    const Thread& other = threads_[member];
    const bool arrived = other.state == State::at_warp_collective && other.mask == waiting.mask &&
                         other.collective.same_name(waiting.collective);
    if (!arrived) return lane;
  }
  return -1;
}

inline bool Block::release_warp_collectives() {
  bool released = false;
  for (int i = 0; i < size_; ++i) {
    if (threads_[i].state != State::at_warp_collective || first_missing_lane(i) >= 0) continue;
    const std::uint32_t mask = threads_[i].mask;
    for (int lane = 0; lane < warpSize; ++lane) {
      if (!(mask >> lane & 1)) continue;
      Thread& member = threads_[first_lane(i) + lane];
      member.published = member.given;
      member.state = State::ready;
    }
    released = true;
  }
  return released;
}

inline bool Block::release_barrier() {
  int predicates = 0;
  for (int i = 0; i < size_; ++i) {
    const Thread& thread = threads_[i];
    if (thread.state != State::at_barrier || !thread.collective.same_place(threads_[0].collective))
      return false;
    predicates += thread.predicate != 0;
  }
  true_predicates_ = predicates;
  for (int i = 0; i < size_; ++i) threads_[i].state = State::ready;
  return true;
}

inline void Block::report_stuck() const {
  for (int i = 0; i < size_; ++i) {
    if (threads_[i].state != State::at_warp_collective) continue;
    const int lane = first_missing_lane(i);
    throw KernelError(Fault::missing_lanes, threads_[i].collective.text() + " is not reached by lane " +
                                                std::to_string(lane) + " of its mask, which " +
                                                whereabouts(first_lane(i) + lane) +
                                                "; waiting there: " + who(threads_[i]));
  }
  const auto waiting = std::find_if(threads_.begin(), threads_.begin() + size_,
                                    [](const Thread& thread) { return thread.state == State::at_barrier; });
  int other = 0;
  while (threads_[other].state == State::at_barrier &&
         threads_[other].collective.same_place(waiting->collective))
    ++other;
  throw KernelError(Fault::divergent_barrier, waiting->collective.text() + " is not reached by all " +
                                                  std::to_string(size_) +
                                                  " threads of the block: " + who(threads_[other]) + " " +
                                                  whereabouts(other) + "; waiting there: " + who(*waiting));
}

inline std::string Block::who(const Thread& thread) const {
  return "thread " + text(thread.index) + " of block " + text(blockIdx);
}

inline std::string Block::whereabouts(int thread) const {
  if (thread >= size_) return "is not part of the block";
  const Thread& found = threads_[thread];
  if (found.state == State::exited) return "has exited";
  const std::string place = "waits at " + found.collective.text();
  if (found.state != State::at_warp_collective) return place;
  char mask[32];
  std::snprintf(mask, sizeof mask, " with mask 0x%08x", found.mask);
  return place + mask;
}

}  // namespace emulation
