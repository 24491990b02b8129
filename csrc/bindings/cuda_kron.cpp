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
// Q_L, Q_R, number of matrices, rows, columns.
using Shape = std::tuple<FactorArguments, FactorArguments, int64_t, int64_t, int64_t>;
// An array and its type.
using Array = std::tuple<uintptr_t, Float>;
// Step in device memory, step, found_inf.
using StepArguments = std::tuple<uintptr_t, int64_t, uintptr_t>;
// param, grad, exp_avg, exp_avg_sq.
using AdamBatch = std::tuple<Array, Array, uintptr_t, uintptr_t, Shape, StepArguments>;

cuda::Factor factor_of(const FactorArguments& factor) {
  return {pointer<const float>(std::get<0>(factor)), std::get<1>(factor)};
}

cuda::KronShape shape_of(const Shape& shape) {
  const auto& [left, right, count, rows, columns] = shape;
  return {factor_of(left), factor_of(right), count, rows, columns};
}

Values values_of(const Array& array) { return {pointer<const void>(std::get<0>(array)), std::get<1>(array)}; }

MutableValues mutable_values_of(const Array& array) { return {pointer<void>(std::get<0>(array)), std::get<1>(array)}; }

void kron_adam(const Cuda& cuda, const std::vector<AdamBatch>& batches, double lr, uintptr_t device_lr, double beta1,
               double beta2, double eps, double weight_decay, double limit, bool maximize, bool original) {
  std::vector<cuda::KronAdamBatch> items;
  for (const auto& [param, grad, exp_avg, exp_avg_sq, shape, step] : batches) {
    const auto& [device_step, number, found_inf] = step;
    items.push_back({mutable_values_of(param), values_of(grad), pointer<float>(exp_avg), pointer<float>(exp_avg_sq),
                     shape_of(shape), pointer<const int64_t>(device_step), number, pointer<const float>(found_inf)});
  }
  const cuda::AdamArguments adam = {beta1, beta2,    eps, weight_decay,
                                    limit, maximize, lr,  pointer<const double>(device_lr)};
  cuda::kron_adam(std::move(items), {adam, original}, cuda.stream());
}

// param and grad with their blocks, scratch, shape, step.
using Adam8Batch = std::tuple<BlockItem, uintptr_t, Shape, StepArguments>;

void kron_adam8(const Cuda& cuda, const std::vector<Adam8Batch>& batches, int64_t block_size, uint64_t seed,
                uintptr_t map, double lr, uintptr_t device_lr, double beta1, double beta2, double eps,
                double weight_decay, double limit, bool maximize, bool original) {
  std::vector<cuda::KronAdam8Batch> items;
  for (const auto& [blocks, scratch, shape, step] : batches) {
    const auto& [device_step, number, found_inf] = step;
    items.push_back({blocks, pointer<float>(scratch), shape_of(shape), pointer<const int64_t>(device_step), number,
                     pointer<const float>(found_inf)});
  }
  const cuda::AdamArguments adam = {beta1, beta2,    eps, weight_decay,
                                    limit, maximize, lr,  pointer<const double>(device_lr)};
  cuda::kron_adam8(std::move(items), {adam, original}, block_size, seed, pointer<const DynamicMap>(map),
                   cuda.stream());
}

void kron_rotate(const Cuda& cuda, const Array& G, const Array& out, const Shape& shape, bool inverse) {
  cuda::kron_rotate(values_of(G), mutable_values_of(out), shape_of(shape), inverse, cuda.stream());
}

}  // namespace

void bind_cuda_kron(CudaClass& cuda) {
  using pybind11::arg;
  const pybind11::kw_only named;
  cuda.def("kron_adam", &kron_adam, arg("batches"), named, arg("lr"), arg("device_lr"), arg("beta1"), arg("beta2"),
           arg("eps"), arg("weight_decay"), arg("limit"), arg("maximize"), arg("original"), Unlocked());
  cuda.def("kron_adam8", &kron_adam8, arg("batches"), named, arg("block_size"), arg("seed"), arg("map"), arg("lr"),
           arg("device_lr"), arg("beta1"), arg("beta2"), arg("eps"), arg("weight_decay"), arg("limit"),
           arg("maximize"), arg("original"), Unlocked());
  cuda.def("kron_rotate", &kron_rotate, arg("G"), arg("out"), arg("shape"), named, arg("inverse"), Unlocked());
}

}  // namespace kpop::bindings
#endif
