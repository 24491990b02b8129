#include "bindings.h"
#include "common/codebook.h"

namespace kpop::bindings {
namespace {

AffineCodes affine(uintptr_t codes, uintptr_t scales, uintptr_t zero_points) {
  return {pointer<uint8_t>(codes), pointer<float>(scales), pointer<uint8_t>(zero_points)};
}

DynamicCodes dynamic(uintptr_t codes, uintptr_t absmax) { return {pointer<uint8_t>(codes), pointer<float>(absmax)}; }

void quantize_int8(const Cpu& cpu, uintptr_t x, Float type, int64_t count, uintptr_t codes, uintptr_t scales,
                   uintptr_t zero_points, int64_t block_size, bool stochastic, bool paper, const RandomStream& random,
                   int threads) {
  cpu.kernels().quantize_int8({pointer<void>(x), type}, {count, block_size}, {stochastic, paper}, random,
                              affine(codes, scales, zero_points), threads);
}

void dequantize_int8(const Cpu& cpu, uintptr_t codes, uintptr_t scales, uintptr_t zero_points, int64_t count,
                     uintptr_t out, Float type, int64_t block_size, int threads) {
  cpu.kernels().dequantize_int8(affine(codes, scales, zero_points), {count, block_size}, {pointer<void>(out), type},
                                threads);
}

void quantize_dynamic8(const Cpu& cpu, uintptr_t x, Float type, int64_t count, uintptr_t codes, uintptr_t absmax,
                       int64_t block_size, bool is_signed, int threads) {
  cpu.kernels().quantize_dynamic8({pointer<void>(x), type}, {count, block_size}, is_signed, dynamic(codes, absmax),
                                  threads);
}

void dequantize_dynamic8(const Cpu& cpu, uintptr_t codes, uintptr_t absmax, int64_t count, uintptr_t out, Float type,
                         int64_t block_size, bool is_signed, int threads) {
  cpu.kernels().dequantize_dynamic8(dynamic(codes, absmax), {count, block_size}, is_signed, {pointer<void>(out), type},
                                    threads);
}

void ema_int8(const Cpu& cpu, uintptr_t codes, uintptr_t scales, uintptr_t zero_points, uintptr_t x, Float type,
              int64_t count, uintptr_t out, int64_t block_size, float beta, float one_minus_beta,
              const RandomStream& random, int threads) {
  cpu.kernels().ema_int8(affine(codes, scales, zero_points), {count, block_size}, {pointer<void>(x), type}, beta,
                         one_minus_beta, random, pointer<float>(out), threads);
}

void ema_sq_dynamic8(const Cpu& cpu, uintptr_t codes, uintptr_t absmax, uintptr_t x, Float type, int64_t count,
                     uintptr_t out, int64_t block_size, float beta, float one_minus_beta, int threads) {
  cpu.kernels().ema_sq_dynamic8(dynamic(codes, absmax), {count, block_size}, {pointer<void>(x), type}, beta,
                                one_minus_beta, pointer<float>(out), threads);
}

void adam8(const Cpu& cpu, uintptr_t param, Float param_type, uintptr_t grad, Float grad_type, int64_t count,
           uintptr_t exp_avg_codes, uintptr_t exp_avg_scales, uintptr_t exp_avg_zero_points,
           uintptr_t exp_avg_sq_codes, uintptr_t exp_avg_sq_absmax, int64_t block_size, const cpu::Adam8Step& step,
           const RandomStream& random, int threads) {
  cpu.kernels().adam8({pointer<void>(param), param_type}, {pointer<void>(grad), grad_type},
                      affine(exp_avg_codes, exp_avg_scales, exp_avg_zero_points),
                      dynamic(exp_avg_sq_codes, exp_avg_sq_absmax), {count, block_size}, step, random, threads);
}

void stochastic_round(const Cpu& cpu, uintptr_t x, int64_t count, uintptr_t out, const RandomStream& random,
                      int threads) {
  cpu.kernels().stochastic_round(pointer<const float>(x), count, random, pointer<uint16_t>(out), threads);
}

cpu::Adam8Step adam8_step(float beta1, float one_minus_beta1, float beta2, float one_minus_beta2, float correction1,
                          float correction2, float eps, float sign, float lr, float decay, float limit) {
  return {{beta1, one_minus_beta1, beta2, one_minus_beta2, correction1, correction2, eps, sign}, lr, decay, limit};
}

// The tables of the map as they lie in memory, for a copy on a device.
pybind11::bytes dynamic_map_bytes(bool is_signed) {
  return {reinterpret_cast<const char*>(&dynamic_map(is_signed)), sizeof(DynamicMap)};
}

void bind_types(pybind11::module_& module) {
  using pybind11::arg;
  const pybind11::kw_only named;
  pybind11::enum_<Float>(module, "Float")
      .value("float32", Float::float32)
      .value("bfloat16", Float::bfloat16)
      .value("float16", Float::float16);
  pybind11::class_<RandomStream>(module, "RandomStream")
      .def(pybind11::init<uint64_t, uint32_t, uint32_t, uint64_t>(), named, arg("seed"), arg("step"), arg("stream"),
           arg("offset"));
  pybind11::class_<cpu::Adam8Step>(module, "Adam8Step")
      .def(pybind11::init(&adam8_step), named, arg("beta1"), arg("one_minus_beta1"), arg("beta2"),
           arg("one_minus_beta2"), arg("correction1"), arg("correction2"), arg("eps"), arg("sign"), arg("lr"),
           arg("decay"), arg("limit"));
}

}  // namespace

void bind_quantize(pybind11::module_& module, CpuClass& cpu) {
  using pybind11::arg;
  const pybind11::kw_only named;
  bind_types(module);
  module.def("dynamic_map_bytes", &dynamic_map_bytes, arg("is_signed"));
  cpu.def("quantize_int8", &quantize_int8, arg("x"), arg("type"), arg("count"), arg("codes"), arg("scales"),
          arg("zero_points"), named, arg("block_size"), arg("stochastic"), arg("paper"), arg("random"),
          arg("threads"), Unlocked());
  cpu.def("dequantize_int8", &dequantize_int8, arg("codes"), arg("scales"), arg("zero_points"), arg("count"),
          arg("out"), arg("type"), named, arg("block_size"), arg("threads"), Unlocked());
  cpu.def("quantize_dynamic8", &quantize_dynamic8, arg("x"), arg("type"), arg("count"), arg("codes"), arg("absmax"),
          named, arg("block_size"), arg("is_signed"), arg("threads"), Unlocked());
  cpu.def("dequantize_dynamic8", &dequantize_dynamic8, arg("codes"), arg("absmax"), arg("count"), arg("out"),
          arg("type"), named, arg("block_size"), arg("is_signed"), arg("threads"), Unlocked());
  cpu.def("ema_int8", &ema_int8, arg("codes"), arg("scales"), arg("zero_points"), arg("x"), arg("type"), arg("count"),
          arg("out"), named, arg("block_size"), arg("beta"), arg("one_minus_beta"), arg("random"), arg("threads"),
          Unlocked());
  cpu.def("ema_sq_dynamic8", &ema_sq_dynamic8, arg("codes"), arg("absmax"), arg("x"), arg("type"), arg("count"),
          arg("out"), named, arg("block_size"), arg("beta"), arg("one_minus_beta"), arg("threads"), Unlocked());
  cpu.def("adam8", &adam8, arg("param"), arg("param_type"), arg("grad"), arg("grad_type"), arg("count"),
          arg("exp_avg_codes"), arg("exp_avg_scales"), arg("exp_avg_zero_points"), arg("exp_avg_sq_codes"),
          arg("exp_avg_sq_absmax"), named, arg("block_size"), arg("step"), arg("random"), arg("threads"), Unlocked());
  cpu.def("stochastic_round", &stochastic_round, arg("x"), arg("count"), arg("out"), named, arg("random"),
          arg("threads"), Unlocked());
}

}  // namespace kpop::bindings
