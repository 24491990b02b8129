// The only file that knows Python. Pointers, sizes, strides and thread counts arrive as integers; the interpreter
// lock is released around the work.
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>

#include "cpu/kernels.h"

namespace py = pybind11;
using kpop::cpu::AdamStep;
using kpop::cpu::Kernels;

namespace {

template <class T>
T* pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

const Kernels* kernels_named(const std::string& isa) {
  if (isa == "best") return &kpop::cpu::best_kernels();
  const Kernels* found = kpop::cpu::find_kernels(isa.c_str());
  if (!found) throw std::invalid_argument("this processor or this build has no kernels for '" + isa + "'");
  return found;
}

// The kernels of one instruction set.
class Cpu {
 public:
  explicit Cpu(const std::string& isa) : kernels_(kernels_named(isa)) {}

  const char* isa() const { return kernels_->name; }

  void adam(uintptr_t g, uintptr_t m, uintptr_t v, int64_t count, float beta1, float one_minus_beta1, float beta2,
            float one_minus_beta2, float correction1, float correction2, float eps, float sign, int threads) const {
    const AdamStep step{beta1, one_minus_beta1, beta2, one_minus_beta2, correction1, correction2, eps, sign};
    kernels_->adam(pointer<float>(g), pointer<float>(m), pointer<float>(v), count, step, threads);
  }

  void symmetric_ema(uintptr_t S, int64_t batch_stride, int64_t row_stride, uintptr_t P, int64_t batch, int64_t n,
                     float beta, float alpha, int threads) const {
    kernels_->symmetric_ema(pointer<float>(S), batch_stride, row_stride, pointer<const float>(P), batch, n, beta,
                            alpha, threads);
  }

 private:
  const Kernels* kernels_;
};

}  // namespace

PYBIND11_MODULE(_native, module) {
  using py::arg;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.attr("CUDA_COMPILED") = false;
  py::class_<Cpu>(module, "Cpu")
      .def(py::init<std::string>(), arg("isa") = "best")
      .def_property_readonly("isa", &Cpu::isa)
      .def("adam", &Cpu::adam, arg("g"), arg("m"), arg("v"), arg("count"), py::kw_only(), arg("beta1"),
           arg("one_minus_beta1"), arg("beta2"), arg("one_minus_beta2"), arg("correction1"), arg("correction2"),
           arg("eps"), arg("sign"), arg("threads"), unlocked)
      .def("symmetric_ema", &Cpu::symmetric_ema, arg("S"), arg("batch_stride"), arg("row_stride"), arg("P"),
           arg("batch"), arg("n"), py::kw_only(), arg("beta"), arg("alpha"), arg("threads"), unlocked);
}
