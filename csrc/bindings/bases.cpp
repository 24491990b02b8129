#include <vector>

#include "bindings.h"

namespace kpop::bindings {
namespace {

void refresh_eigenbasis(const Cpu& cpu, uintptr_t S, uintptr_t old, uintptr_t Q, uintptr_t eigvals, uintptr_t P,
                        uintptr_t failed, int64_t batch, int64_t n, bool sort, int threads) {
  std::vector<cpu::BasisItem> items;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t at = i * n * n;
    items.push_back({pointer<const float>(S) + at, pointer<const float>(old) + at, pointer<float>(Q) + at,
                     pointer<float>(eigvals) + i * n, pointer<float>(P) + at, pointer<bool>(failed) + i, n});
  }
  cpu.kernels().refresh_eigenbasis(items.data(), batch, sort, threads);
}

}  // namespace

void bind_bases(CpuClass& cpu) {
  using pybind11::arg;
  cpu.def("refresh_eigenbasis", &refresh_eigenbasis, arg("S"), arg("old"), arg("Q"), arg("eigvals"), arg("P"),
          arg("failed"), pybind11::kw_only(), arg("batch"), arg("n"), arg("sort"), arg("threads"), Unlocked());
}

}  // namespace kpop::bindings
