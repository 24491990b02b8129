// A Python module with the package's own bindings over emulated kernels. The types that both share come from the
// package's module, which must have been imported.
#include "bindings/bindings.h"

#include <pybind11/stl.h>

#include "emulated_runtime.h"

PYBIND11_MODULE(emulated_native, module) {
  using namespace kpop::bindings;
  CudaClass cuda(module, "Cuda", pybind11::module_local());
  cuda.def(pybind11::init<uintptr_t>(), pybind11::arg("stream"));
  bind_cuda_kron(cuda);
  bind_cuda_quantize(cuda);
  bind_cuda_roots(cuda);
  module.def("set_order", &emulation::set_order, pybind11::arg("order"), pybind11::arg("seed"));
  module.def("take_launches", &emulation::take_launches);
}
