#ifdef KPOP_WITH_CUDA
#include <pybind11/stl.h>

#include <vector>

#include "bindings.h"
#include "cuda/quantize.h"

namespace kpop::bindings {
namespace {

AffineCodes affine(uintptr_t codes, uintptr_t scales, uintptr_t zero_points) {
  return {pointer<uint8_t>(codes), pointer<float>(scales), pointer<uint8_t>(zero_points)};
}

DynamicCodes dynamic(uintptr_t codes, uintptr_t absmax) { return {pointer<uint8_t>(codes), pointer<float>(absmax)}; }

cuda::RandomArguments random_of(const RandomStream& stream, uintptr_t step) {
  return {stream, pointer<const int64_t>(step)};
}

void quantize_int8(const Cuda& cuda, uintptr_t x, Float type, int64_t count, uintptr_t codes, uintptr_t scales,
                   uintptr_t zero_points, int64_t block_size, bool stochastic, bool paper, const RandomStream& random,
                   uintptr_t step) {
  cuda::quantize_int8({pointer<void>(x), type}, {count, block_size}, {stochastic, paper}, random_of(random, step),
                      affine(codes, scales, zero_points), cuda.stream());
}

void dequantize_int8(const Cuda& cuda, uintptr_t codes, uintptr_t scales, uintptr_t zero_points, int64_t count,
                     uintptr_t out, Float type, int64_t block_size) {
  cuda::dequantize_int8(affine(codes, scales, zero_points), {count, block_size}, {pointer<void>(out), type},
                        cuda.stream());
}

void quantize_dynamic8(const Cuda& cuda, uintptr_t x, Float type, int64_t count, uintptr_t codes, uintptr_t absmax,
                       int64_t block_size, bool is_signed, uintptr_t map) {
  cuda::quantize_dynamic8({pointer<void>(x), type}, {count, block_size}, pointer<const DynamicMap>(map), is_signed,
                          dynamic(codes, absmax), cuda.stream());
}

void dequantize_dynamic8(const Cuda& cuda, uintptr_t codes, uintptr_t absmax, int64_t count, uintptr_t out, Float type,
                         int64_t block_size, uintptr_t map) {
  cuda::dequantize_dynamic8(dynamic(codes, absmax), {count, block_size}, pointer<const DynamicMap>(map),
                            {pointer<void>(out), type}, cuda.stream());
}

void ema_int8(const Cuda& cuda, uintptr_t codes, uintptr_t scales, uintptr_t zero_points, uintptr_t x, Float type,
              int64_t count, uintptr_t out, int64_t block_size, double beta, const RandomStream& random,
              uintptr_t step) {
  cuda::ema_int8(affine(codes, scales, zero_points), {count, block_size}, {pointer<void>(x), type}, beta,
                 random_of(random, step), pointer<float>(out), cuda.stream());
}

void ema_sq_dynamic8(const Cuda& cuda, uintptr_t codes, uintptr_t absmax, uintptr_t x, Float type, int64_t count,
                     uintptr_t out, int64_t block_size, double beta, uintptr_t map) {
  cuda::ema_sq_dynamic8(dynamic(codes, absmax), {count, block_size}, pointer<const DynamicMap>(map),
                        {pointer<void>(x), type}, beta, pointer<float>(out), cuda.stream());
}

void adam8(const Cuda& cuda, uintptr_t param, Float param_type, uintptr_t grad, Float grad_type, int64_t count,
           uintptr_t exp_avg_codes, uintptr_t exp_avg_scales, uintptr_t exp_avg_zero_points,
           uintptr_t exp_avg_sq_codes, uintptr_t exp_avg_sq_absmax, int64_t block_size, double lr, uintptr_t device_lr,
           double beta1, double beta2, double eps, double weight_decay, double limit, bool maximize,
           uintptr_t found_inf, const RandomStream& random, uintptr_t step, uintptr_t map) {
  const cuda::AdamArguments adam = {beta1, beta2,    eps, weight_decay,
                                    limit, maximize, lr,  pointer<const double>(device_lr)};
  cuda::adam8({pointer<void>(param), param_type}, {pointer<void>(grad), grad_type},
              affine(exp_avg_codes, exp_avg_scales, exp_avg_zero_points), dynamic(exp_avg_sq_codes, exp_avg_sq_absmax),
              {count, block_size}, pointer<const DynamicMap>(map), {adam, pointer<const float>(found_inf)},
              random_of(random, step), cuda.stream());
}

using Items = std::vector<BlockItem>;

void quantize_int8_list(const Cuda& cuda, const Items& items, int64_t block_size, bool stochastic, bool paper,
                        const RandomStream& random, uintptr_t step) {
  cuda::quantize_int8_list(items.data(), items.size(), block_size, {stochastic, paper}, random_of(random, step),
                           cuda.stream());
}

void dequantize_int8_list(const Cuda& cuda, const Items& items, int64_t block_size) {
  cuda::dequantize_int8_list(items.data(), items.size(), block_size, cuda.stream());
}

void ema_int8_list(const Cuda& cuda, const Items& items, int64_t block_size, double beta, const RandomStream& random,
                   uintptr_t step) {
  cuda::ema_int8_list(items.data(), items.size(), block_size, beta, random_of(random, step), cuda.stream());
}

void ema_sq_dynamic8_list(const Cuda& cuda, const Items& items, int64_t block_size, double beta, uintptr_t map) {
  cuda::ema_sq_dynamic8_list(items.data(), items.size(), block_size, pointer<const DynamicMap>(map), beta,
                             cuda.stream());
}

void adam8_list(const Cuda& cuda, const Items& items, int64_t block_size, double lr, uintptr_t device_lr, double beta1,
                double beta2, double eps, double weight_decay, double limit, bool maximize, uintptr_t found_inf,
                const RandomStream& random, uintptr_t step, uintptr_t map) {
  const cuda::AdamArguments adam = {beta1, beta2,    eps, weight_decay,
                                    limit, maximize, lr,  pointer<const double>(device_lr)};
  cuda::adam8_list(items.data(), items.size(), block_size, pointer<const DynamicMap>(map),
                   {adam, pointer<const float>(found_inf)}, random_of(random, step), cuda.stream());
}

void stochastic_round(const Cuda& cuda, uintptr_t x, int64_t count, uintptr_t out, const RandomStream& random,
                      uintptr_t step) {
  cuda::stochastic_round(pointer<const float>(x), count, random_of(random, step), pointer<uint16_t>(out),
                         cuda.stream());
}

}  // namespace

void bind_cuda_quantize(CudaClass& cuda) {
  using pybind11::arg;
  const pybind11::kw_only named;
  cuda.def("quantize_int8", &quantize_int8, arg("x"), arg("type"), arg("count"), arg("codes"), arg("scales"),
           arg("zero_points"), named, arg("block_size"), arg("stochastic"), arg("paper"), arg("random"), arg("step"),
           Unlocked());
  cuda.def("dequantize_int8", &dequantize_int8, arg("codes"), arg("scales"), arg("zero_points"), arg("count"),
           arg("out"), arg("type"), named, arg("block_size"), Unlocked());
  cuda.def("quantize_dynamic8", &quantize_dynamic8, arg("x"), arg("type"), arg("count"), arg("codes"), arg("absmax"),
           named, arg("block_size"), arg("is_signed"), arg("map"), Unlocked());
  cuda.def("dequantize_dynamic8", &dequantize_dynamic8, arg("codes"), arg("absmax"), arg("count"), arg("out"),
           arg("type"), named, arg("block_size"), arg("map"), Unlocked());
  cuda.def("ema_int8", &ema_int8, arg("codes"), arg("scales"), arg("zero_points"), arg("x"), arg("type"), arg("count"),
           arg("out"), named, arg("block_size"), arg("beta"), arg("random"), arg("step"), Unlocked());
  cuda.def("ema_sq_dynamic8", &ema_sq_dynamic8, arg("codes"), arg("absmax"), arg("x"), arg("type"), arg("count"),
           arg("out"), named, arg("block_size"), arg("beta"), arg("map"), Unlocked());
  cuda.def("adam8", &adam8, arg("param"), arg("param_type"), arg("grad"), arg("grad_type"), arg("count"),
           arg("exp_avg_codes"), arg("exp_avg_scales"), arg("exp_avg_zero_points"), arg("exp_avg_sq_codes"),
           arg("exp_avg_sq_absmax"), named, arg("block_size"), arg("lr"), arg("device_lr"), arg("beta1"), arg("beta2"),
           arg("eps"), arg("weight_decay"), arg("limit"), arg("maximize"), arg("found_inf"), arg("random"),
           arg("step"), arg("map"), Unlocked());
  cuda.def("quantize_int8_list", &quantize_int8_list, arg("items"), named, arg("block_size"), arg("stochastic"),
           arg("paper"), arg("random"), arg("step"), Unlocked());
  cuda.def("dequantize_int8_list", &dequantize_int8_list, arg("items"), named, arg("block_size"), Unlocked());
  cuda.def("ema_int8_list", &ema_int8_list, arg("items"), named, arg("block_size"), arg("beta"), arg("random"),
           arg("step"), Unlocked());
  cuda.def("ema_sq_dynamic8_list", &ema_sq_dynamic8_list, arg("items"), named, arg("block_size"), arg("beta"),
           arg("map"), Unlocked());
  cuda.def("adam8_list", &adam8_list, arg("items"), named, arg("block_size"), arg("lr"), arg("device_lr"),
           arg("beta1"), arg("beta2"), arg("eps"), arg("weight_decay"), arg("limit"), arg("maximize"),
           arg("found_inf"), arg("random"), arg("step"), arg("map"), Unlocked());
  cuda.def("stochastic_round", &stochastic_round, arg("x"), arg("count"), arg("out"), named, arg("random"),
           arg("step"), Unlocked());
}

}  // namespace kpop::bindings
#endif
