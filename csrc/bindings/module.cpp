#include "bindings.h"

#include <stdexcept>

namespace kpop::bindings {
namespace {

const cpu::Kernels* kernels_named(const std::string& isa) {
  if (isa == "best") return &cpu::best_kernels();
  const cpu::Kernels* found = cpu::find_kernels(isa.c_str());
  if (!found) throw std::invalid_argument("this processor or this build has no kernels for '" + isa + "'");
  return found;
}

}  // namespace

Cpu::Cpu(const std::string& isa) : kernels_(kernels_named(isa)) {}

}  // namespace kpop::bindings

PYBIND11_MODULE(_native, module) {
  using namespace kpop::bindings;
#ifdef KPOP_WITH_CUDA
  module.attr("CUDA_COMPILED") = true;
  CudaClass cuda(module, "Cuda", pybind11::module_local());
  cuda.def(pybind11::init<uintptr_t>(), pybind11::arg("stream"));
#else
  module.attr("CUDA_COMPILED") = false;
#endif
  CpuClass cpu(module, "Cpu");
  cpu.def(pybind11::init<std::string>(), pybind11::arg("isa") = "best");
  cpu.def_property_readonly("isa", &Cpu::isa);
  bind_bases(cpu);
  bind_kron(cpu);
  bind_quantize(module, cpu);
  bind_roots(cpu);
#ifdef KPOP_WITH_CUDA
  bind_cuda_kron(cuda);
  bind_cuda_quantize(cuda);
  bind_cuda_roots(cuda);
#endif
}
