// Limits of lists of matrices that a launch takes, each matrix in one thread block.
#pragma once

namespace kpop::cuda {

constexpr int LARGEST_LIST = 256;
constexpr int LARGEST_ORDER = 128;

}  // namespace kpop::cuda
