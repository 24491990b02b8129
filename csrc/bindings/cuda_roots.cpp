#ifdef KPOP_WITH_CUDA
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "cuda/roots.h"

namespace kpop::bindings {
namespace {

// A, out, bound, number of matrices, n.
using RootBatch = std::tuple<uintptr_t, uintptr_t, uintptr_t, int64_t, int64_t>;

// The scales of Y and Z and what undoes them, then five numbers a step.
cuda::RootStage stage_of(const std::vector<float>& numbers) {
  constexpr size_t scales = 4, each = 5;
  const size_t steps = (numbers.size() - scales) / each;
  if (numbers.size() < scales || numbers.size() != scales + steps * each || steps > cuda::LARGEST_STEPS)
    throw std::invalid_argument("a stage of an inverse root has 4 numbers and 5 for each of up to " +
                                std::to_string(cuda::LARGEST_STEPS) + " steps");
  cuda::RootStage stage = {static_cast<int>(steps), numbers[0], numbers[1], numbers[2], numbers[3], {}};
  for (size_t i = 0; i < steps; ++i) {
    const float* const n = &numbers[scales + each * i];
    stage.step[i] = {n[0], n[1], n[2], n[3], n[4]};
  }
  return stage;
}

void inverse_root(const Cuda& cuda, const std::vector<RootBatch>& batches, Float type, int p, bool float16,
                  const std::vector<float>& first, const std::vector<float>& second, float damping,
                  float relative_damping) {
  std::vector<cuda::RootBatch> items;
  for (const auto& [A, out, bound, count, n] : batches)
    items.push_back({pointer<const void>(A), pointer<void>(out), pointer<float>(bound), count, n});
  cuda::inverse_root(items, {p, type, float16, damping, relative_damping, stage_of(first), stage_of(second)},
                     cuda.stream());
}

}  // namespace

void bind_cuda_roots(CudaClass& cuda) {
  using pybind11::arg;
  const pybind11::kw_only named;
  cuda.def("inverse_root", &inverse_root, arg("batches"), arg("type"), arg("p"), named, arg("float16"), arg("first"),
           arg("second"), arg("damping"), arg("relative_damping"), Unlocked());
}

}  // namespace kpop::bindings
#endif
