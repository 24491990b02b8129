// The Python module. Only the files of this folder know Python: pointers, sizes, strides and thread counts arrive as
// integers, and the interpreter lock is released around the work.
#pragma once
#include <pybind11/pybind11.h>

#include <string>

#include "cpu/kernels.h"

namespace kpop::bindings {

template <class T>
T* pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

// The CPU kernels of one instruction set.
class Cpu {
 public:
  explicit Cpu(const std::string& isa);
  const char* isa() const { return kernels_->name; }
  const cpu::Kernels& kernels() const { return *kernels_; }

 private:
  const cpu::Kernels* kernels_;
};

// The CUDA kernels on one stream of the current device.
class Cuda {
 public:
  explicit Cuda(uintptr_t stream) : stream_(pointer<void>(stream)) {}
  void* stream() const { return stream_; }

 private:
  void* stream_;
};

using CpuClass = pybind11::class_<Cpu>;
using CudaClass = pybind11::class_<Cuda>;
using Unlocked = pybind11::call_guard<pybind11::gil_scoped_release>;

void bind_bases(CpuClass& cpu);
void bind_kron(CpuClass& cpu);
void bind_quantize(pybind11::module_& module, CpuClass& cpu);
void bind_roots(CpuClass& cpu);

// Defined where there is nvcc.
void bind_cuda_kron(CudaClass& cuda);
void bind_cuda_quantize(CudaClass& cuda);
void bind_cuda_roots(CudaClass& cuda);

}  // namespace kpop::bindings
