#include <pybind11/stl.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"

namespace kpop::bindings {
namespace {

void symmetric_product(const Cpu& cpu, uintptr_t A, bool A_depth_major, uintptr_t B, bool B_depth_major, uintptr_t C,
                       uintptr_t out, int64_t batch, int64_t n, int64_t k, float alpha, float beta, int threads) {
  cpu.kernels().symmetric_product({pointer<const float>(A), A_depth_major}, {pointer<const float>(B), B_depth_major},
                                  pointer<const float>(C), pointer<float>(out), batch, n, k, alpha, beta, threads);
}

// A batch of matrices of one size: A, out, bound, number of matrices, n, most steps.
using RootBatch = std::tuple<uintptr_t, uintptr_t, uintptr_t, int64_t, int64_t, int64_t>;

// One item for each matrix, long ones first, so that no thread is left with one at the end.
std::vector<cpu::RootItem> items_of(const std::vector<RootBatch>& batches) {
  std::vector<cpu::RootItem> items;
  for (const auto& [A, out, bound, count, n, most_steps] : batches)
    for (int64_t i = 0; i < count; ++i)
      items.push_back({pointer<const float>(A) + i * n * n, pointer<float>(out) + i * n * n,
                       pointer<float>(bound) + i, n, most_steps});
  std::stable_sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.n > b.n; });
  return items;
}

cpu::Schedule steps(const std::vector<float>& flat) { return {flat.data(), static_cast<int>(flat.size() / 2)}; }

// Shorter schedules with the smallest eigenvalues that they serve.
using ShorterSchedules = std::vector<std::pair<float, std::vector<float>>>;

void inverse_root(const Cpu& cpu, const std::vector<RootBatch>& batches, int p, const std::vector<float>& schedule,
                  const ShorterSchedules& shorter, const std::vector<float>& second_stage, float damping,
                  float relative_damping, int threads) {
  const std::vector<cpu::RootItem> items = items_of(batches);
  std::vector<cpu::BoundedSchedule> bounded;
  for (const auto& [least, flat] : shorter) bounded.push_back({least, steps(flat)});
  const cpu::RootOptions options{p, damping, relative_damping, steps(schedule), steps(second_stage), bounded.data(),
                                 static_cast<int>(bounded.size())};
  cpu.kernels().inverse_root(items.data(), static_cast<int64_t>(items.size()), options, threads);
}

void normalize(const Cpu& cpu, const std::vector<RootBatch>& batches, float damping, float relative_damping,
               int threads) {
  const std::vector<cpu::RootItem> items = items_of(batches);
  const cpu::RootOptions options{1, damping, relative_damping, {}, {}, nullptr, 0};
  cpu.kernels().normalize(items.data(), static_cast<int64_t>(items.size()), options, threads);
}

}  // namespace

void bind_roots(CpuClass& cpu) {
  using pybind11::arg;
  const pybind11::kw_only named;
  cpu.def("symmetric_product", &symmetric_product, arg("A"), arg("A_depth_major"), arg("B"), arg("B_depth_major"),
          arg("C"), arg("out"), named, arg("batch"), arg("n"), arg("k"), arg("alpha"), arg("beta"), arg("threads"),
          Unlocked());
  cpu.def("inverse_root", &inverse_root, arg("batches"), arg("p"), named, arg("schedule"), arg("shorter"),
          arg("second_stage"), arg("damping"), arg("relative_damping"), arg("threads"), Unlocked());
  cpu.def("normalize", &normalize, arg("batches"), named, arg("damping"), arg("relative_damping"), arg("threads"),
          Unlocked());
}

}  // namespace kpop::bindings
