// Runs a kernel's body for every block of a grid.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#include "block.h"
#include "shared_memory.h"

namespace emulation {

// Mirrored by a ctypes.Structure in cuda_emulator.py.
struct LaunchShape {
  std::uint32_t grid[3];
  std::uint32_t block[3];
  std::uint64_t dynamic_shared_bytes;
  std::int32_t order;
  std::uint64_t seed;
};

inline void check_shape(const LaunchShape& shape) {
  const std::uint64_t threads = std::uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  if (threads < 1 || threads > 1024 || shape.block[2] > 64)
    throw KernelError(Fault::bad_launch, "a block has 1 to 1024 threads and at most 64 in z, not " +
                                             text({shape.block[0], shape.block[1], shape.block[2]}));
  if (!shape.grid[0] || !shape.grid[1] || !shape.grid[2] || shape.grid[0] > 0x7fffffffu ||
      shape.grid[1] > 65535 || shape.grid[2] > 65535)
    throw KernelError(Fault::bad_launch, "a grid has 1 to (2147483647, 65535, 65535) blocks, not " +
                                             text({shape.grid[0], shape.grid[1], shape.grid[2]}));
  if (std::uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2] > 0x7fffffffu)
    throw KernelError(Fault::bad_launch, "the emulation runs at most 2147483647 blocks");
}

inline void run_grid(const LaunchShape& shape, std::function<void()> body) {
  check_shape(shape);
  gridDim = {shape.grid[0], shape.grid[1], shape.grid[2]};
  blockDim = {shape.block[0], shape.block[1], shape.block[2]};
  const auto threads = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
  block.prepare(threads, static_cast<Order>(shape.order), shape.seed, std::move(body));
  const StaticSharedMemory fixed = StaticSharedMemory::find();
  DynamicSharedMemory dynamic(shape.dynamic_shared_bytes);
  for (int linear : block.ordered(static_cast<int>(gridDim.x * gridDim.y * gridDim.z))) {
    const auto index = static_cast<unsigned>(linear);
    blockIdx = {index % gridDim.x, index / gridDim.x % gridDim.y, index / (gridDim.x * gridDim.y)};
    std::memset(fixed.data, poison_byte, fixed.bytes);
    dynamic.poison();
    block.run();
    dynamic.check_guard();
  }
}

}  // namespace emulation
