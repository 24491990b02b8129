// What the Python module of the emulated kernels asks the library that holds them: its state lies there.
#include "checks.h"
#include "emulated_runtime.h"
#include "runtime.h"

namespace emulation {

void set_order(int order, std::uint64_t seed) {
  runtime.order = static_cast<Order>(order);
  runtime.seed = seed;
}

std::vector<std::string> take_launches() { return std::exchange(runtime.launches, {}); }

}  // namespace emulation
