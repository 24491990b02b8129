#include <pybind11/stl.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"

namespace kpop::bindings {
namespace {

// A factor, and whether it is stored depth first.
using Factor = std::pair<uintptr_t, bool>;

// A, B, C, out, number of matrices, n, inner dimension, alpha.
using ProductBatch = std::tuple<Factor, Factor, uintptr_t, uintptr_t, int64_t, int64_t, int64_t, float>;

// One item for each product, long ones first, so that no thread is left with one at the end.
void symmetric_products(const Cpu& cpu, const std::vector<ProductBatch>& batches, float beta, int threads) {
  std::vector<cpu::SymmetricItem> items;
  for (const auto& [A, B, C, out, count, n, k, alpha] : batches)
    for (int64_t i = 0; i < count; ++i) {
      const auto operand = [at = i * n * k](const Factor& factor) {
        return cpu::Operand{pointer<const float>(factor.first) + at, factor.second};
      };
      items.push_back({operand(A), operand(B), C ? pointer<const float>(C) + i * n * n : nullptr,
                       pointer<float>(out) + i * n * n, n, k, alpha});
    }
  std::stable_sort(items.begin(), items.end(),
                   [](const auto& a, const auto& b) { return a.n * a.n * a.k > b.n * b.n * b.k; });
  cpu.kernels().symmetric_products(items.data(), static_cast<int64_t>(items.size()), beta, threads);
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
  cpu.def("symmetric_products", &symmetric_products, arg("batches"), named, arg("beta"), arg("threads"), Unlocked());
  cpu.def("inverse_root", &inverse_root, arg("batches"), arg("p"), named, arg("schedule"), arg("shorter"),
          arg("second_stage"), arg("damping"), arg("relative_damping"), arg("threads"), Unlocked());
  cpu.def("normalize", &normalize, arg("batches"), named, arg("damping"), arg("relative_damping"), arg("threads"),
          Unlocked());
}

}  // namespace kpop::bindings
