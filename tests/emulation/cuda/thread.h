// What the emulation knows of one CUDA thread, and the errors a kernel can be found to make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "fiber.h"
#include "vector_types.h"

namespace emulation {

// cuda_emulator.py raises one exception type for each of these numbers.
enum class Fault : int {
  none = 0,
  divergent_barrier = 1,
  missing_lanes = 2,
  misaligned_access = 3,
  out_of_bounds = 4,
  bad_launch = 5,
};

struct KernelError : std::runtime_error {
  KernelError(Fault kind, const std::string& message) : std::runtime_error(message), fault(kind) {}
  Fault fault;
};

inline std::string file_and_line(const char* file, unsigned line) {
  const char* slash = std::strrchr(file, '/');
  return std::string(slash ? slash + 1 : file) + ":" + std::to_string(line);
}

// A collective operation as a thread meets it: what it is and where it stands in the source.
struct Collective {
  const char* name;
  const char* file;
  unsigned line;

  bool same_name(const Collective& other) const { return !std::strcmp(name, other.name); }
  bool same_place(const Collective& other) const {
    return same_name(other) && line == other.line && !std::strcmp(file, other.file);
  }
  std::string text() const { return std::string(name) + " (" + file_and_line(file, line) + ")"; }
};

// Parameters that capture the caller's line; they follow the arguments a kernel gives.
#define EMULATION_CALLER const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

enum class State { ready, at_barrier, at_warp_collective, exited };

// What a lane gives to a warp collective. The largest is mma.sync: four registers of A and two of B.
struct Payload {
  static constexpr std::size_t capacity = 24;
  alignas(8) unsigned char bytes[capacity];

  template <typename T>
  static Payload of(const T& value) {
    static_assert(sizeof(T) <= capacity, "a warp collective exchanges at most 24 bytes per lane");
    Payload payload{};
    std::memcpy(payload.bytes, &value, sizeof(T));
    return payload;
  }

  template <typename T>
  T as() const {
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  }
};

// A cp.async that was issued. Its bytes move when the thread waits for its group, not before.
struct AsyncCopy {
  unsigned char* destination;
  const unsigned char* source;
  unsigned source_bytes;
  unsigned total_bytes;
  int group;
};

struct Thread {
  Fiber fiber;
  uint3 index{};
  State state = State::ready;
  Collective collective{};
  std::uint32_t mask = 0;
  Payload given{};
  Payload published{};  // `given` at the release: a fast lane's next collective must not overwrite it
  int predicate = 0;
  std::vector<AsyncCopy> async_copies;
  int async_group = 0;

  void restart(void (*entry)()) {
    fiber.reset(entry);
    state = State::ready;
    async_copies.clear();
    async_group = 0;
  }
};

inline std::string text(uint3 index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) +
         ")";
}

}  // namespace emulation
