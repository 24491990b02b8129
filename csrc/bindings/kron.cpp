#include "bindings.h"

namespace kpop::bindings {
namespace {

void adam(const Cpu& cpu, uintptr_t g, uintptr_t m, uintptr_t v, int64_t count, float beta1, float one_minus_beta1,
          float beta2, float one_minus_beta2, float correction1, float correction2, float eps, float sign,
          int threads) {
  const cpu::AdamStep step{beta1, one_minus_beta1, beta2, one_minus_beta2, correction1, correction2, eps, sign};
  cpu.kernels().adam(pointer<float>(g), pointer<float>(m), pointer<float>(v), count, step, threads);
}

void symmetric_ema(const Cpu& cpu, uintptr_t S, int64_t batch_stride, int64_t row_stride, uintptr_t P, int64_t batch,
                   int64_t n, float beta, float alpha, int threads) {
  cpu.kernels().symmetric_ema(pointer<float>(S), batch_stride, row_stride, pointer<const float>(P), batch, n, beta,
                              alpha, threads);
}

}  // namespace

void bind_kron(CpuClass& cpu) {
  using pybind11::arg;
  const pybind11::kw_only scalars;
  cpu.def("adam", &adam, arg("g"), arg("m"), arg("v"), arg("count"), scalars, arg("beta1"), arg("one_minus_beta1"),
          arg("beta2"), arg("one_minus_beta2"), arg("correction1"), arg("correction2"), arg("eps"), arg("sign"),
          arg("threads"), Unlocked());
  cpu.def("symmetric_ema", &symmetric_ema, arg("S"), arg("batch_stride"), arg("row_stride"), arg("P"), arg("batch"),
          arg("n"), scalars, arg("beta"), arg("alpha"), arg("threads"), Unlocked());
}

}  // namespace kpop::bindings
