// See emulated_runtime.cpp; free of CUDA's names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emulation {

// How the threads and blocks of the launches to come are ordered.
void set_order(int order, std::uint64_t seed);

// The names of the kernels that ran since the last call.
std::vector<std::string> take_launches();

}  // namespace emulation
