#ifdef KPOP_WITH_CUDA
#include <pybind11/stl.h>

#include <tuple>
#include <vector>

#include "bindings.h"
#include "cuda/kron.h"

namespace kpop::bindings {
namespace {

// An array of factors and whether there is one for each matrix.
using FactorArguments = std::tuple<uintptr_t, bool>;
// An array and its type.
using Array = std::tuple<uintptr_t, Float>;
// Step in device memory, step, found_inf.
using StepArguments = std::tuple<uintptr_t, int64_t, uintptr_t>;
// param, grad, exp_avg, exp_avg_sq, Q_L, Q_R, step, number of matrices, rows, columns.
using AdamBatch = std::tuple<Array, Array, uintptr_t, uintptr_t, FactorArguments, FactorArguments, StepArguments,
                             int64_t, int64_t, int64_t>;

cuda::Factor factor_of(const FactorArguments& factor) {
  return {pointer<const float>(std::get<0>(factor)), std::get<1>(factor)};
}

Values values_of(const Array& array) { return {pointer<const void>(std::get<0>(array)), std::get<1>(array)}; }

MutableValues mutable_values_of(const Array& array) { return {pointer<void>(std::get<0>(array)), std::get<1>(array)}; }

void kron_adam(const Cuda& cuda, const std::vector<AdamBatch>& batches, double lr, uintptr_t device_lr, double beta1,
               double beta2, double eps, double weight_decay, double limit, bool maximize, bool original) {
  std::vector<cuda::KronAdamBatch> items;
  for (const auto& [param, grad, exp_avg, exp_avg_sq, left, right, step, count, rows, columns] : batches) {
    const auto& [device_step, number, found_inf] = step;
    items.push_back({mutable_values_of(param), values_of(grad), pointer<float>(exp_avg), pointer<float>(exp_avg_sq),
                     factor_of(left), factor_of(right), pointer<const int64_t>(device_step), number,
                     pointer<const float>(found_inf), count, rows, columns});
  }
  const cuda::AdamArguments adam = {beta1, beta2,    eps, weight_decay,
                                    limit, maximize, lr,  pointer<const double>(device_lr)};
  cuda::kron_adam(items, {adam, original}, cuda.stream());
}

void kron_rotate(const Cuda& cuda, const Array& G, const Array& out, const FactorArguments& left,
                 const FactorArguments& right, int64_t count, int64_t rows, int64_t columns, bool inverse) {
  cuda::kron_rotate(values_of(G), mutable_values_of(out), factor_of(left), factor_of(right), inverse, count, rows,
                    columns, cuda.stream());
}

}  // namespace

void bind_cuda_kron(CudaClass& cuda) {
  using pybind11::arg;
  const pybind11::kw_only named;
  cuda.def("kron_adam", &kron_adam, arg("batches"), named, arg("lr"), arg("device_lr"), arg("beta1"), arg("beta2"),
           arg("eps"), arg("weight_decay"), arg("limit"), arg("maximize"), arg("original"), Unlocked());
  cuda.def("kron_rotate", &kron_rotate, arg("G"), arg("out"), arg("left"), arg("right"), arg("count"), arg("rows"),
           arg("columns"), named, arg("inverse"), Unlocked());
}

}  // namespace kpop::bindings
#endif
