#include "bindings.h"

namespace kpop::bindings {
namespace {

void adam(const Cpu& cpu, uintptr_t g, uintptr_t m, uintptr_t v, int64_t count, float beta1, float one_minus_beta1,
          float beta2, float one_minus_beta2, float correction1, float correction2, float eps, float sign,
          int threads) {
  const cpu::AdamStep step{beta1, one_minus_beta1, beta2, one_minus_beta2, correction1, correction2, eps, sign};
  cpu.kernels().adam(pointer<float>(g), pointer<float>(m), pointer<float>(v), count, step, threads);
}

}  // namespace

void bind_kron(CpuClass& cpu) {
  using pybind11::arg;
  const pybind11::kw_only scalars;
  cpu.def("adam", &adam, arg("g"), arg("m"), arg("v"), arg("count"), scalars, arg("beta1"), arg("one_minus_beta1"),
          arg("beta2"), arg("one_minus_beta2"), arg("correction1"), arg("correction2"), arg("eps"), arg("sign"),
          arg("threads"), Unlocked());
}

}  // namespace kpop::bindings
