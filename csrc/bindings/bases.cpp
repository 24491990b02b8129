#include <pybind11/stl.h>

#include <tuple>
#include <vector>

#include "bindings.h"

namespace kpop::bindings {
namespace {

// S, basis so far, new basis, eigenvalues, change of basis, flags, number of matrices, n.
using BasisBatch = std::tuple<uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, int64_t, int64_t>;

std::vector<cpu::BasisItem> items_of(const BasisBatch& batch) {
  const auto& [S, old, Q, eigvals, P, failed, count, n] = batch;
  std::vector<cpu::BasisItem> items;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = i * n * n;
    items.push_back({pointer<const float>(S) + at, pointer<const float>(old) + at, pointer<float>(Q) + at,
                     pointer<float>(eigvals) + i * n, pointer<float>(P) + at, pointer<bool>(failed) + i, n});
  }
  return items;
}

void refresh_eigenbasis(const Cpu& cpu, const BasisBatch& batch, bool sort, int threads) {
  const auto items = items_of(batch);
  cpu.kernels().refresh_eigenbasis(items.data(), static_cast<int64_t>(items.size()), sort, threads);
}

void prepare_eigenbasis(const Cpu& cpu, const BasisBatch& batch, float shift, int threads) {
  const auto items = items_of(batch);
  cpu.kernels().prepare_eigenbasis(items.data(), static_cast<int64_t>(items.size()), shift, threads);
}

void take_eigenbasis(const Cpu& cpu, const BasisBatch& batch, uintptr_t vectors, uintptr_t values, float shift,
                     bool sort, int threads) {
  const auto items = items_of(batch);
  std::vector<cpu::Eigenpairs> found;
  for (size_t i = 0; i < items.size(); ++i)
    found.push_back({pointer<const float>(vectors) + i * items[i].n * items[i].n,
                     pointer<const float>(values) + i * items[i].n});
  cpu.kernels().take_eigenbasis(items.data(), found.data(), static_cast<int64_t>(items.size()), shift, sort, threads);
}

}  // namespace

void bind_bases(CpuClass& cpu) {
  using pybind11::arg;
  const pybind11::kw_only named;
  cpu.def("refresh_eigenbasis", &refresh_eigenbasis, arg("batch"), named, arg("sort"), arg("threads"), Unlocked());
  cpu.def("prepare_eigenbasis", &prepare_eigenbasis, arg("batch"), named, arg("shift"), arg("threads"), Unlocked());
  cpu.def("take_eigenbasis", &take_eigenbasis, arg("batch"), arg("vectors"), arg("values"), named, arg("shift"),
          arg("sort"), arg("threads"), Unlocked());
}

}  // namespace kpop::bindings
