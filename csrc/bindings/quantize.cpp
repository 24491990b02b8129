#include <pybind11/stl.h>

#include <vector>

#include "bindings.h"
#include "common/codebook.h"

namespace kpop::bindings {
namespace {

using Items = std::vector<BlockItem>;

BlockItem block_item(int64_t count, uintptr_t x, Float x_type, uintptr_t out, Float out_type, uintptr_t codes,
                          uintptr_t scales, uintptr_t zero_points, uintptr_t dynamic_codes, uintptr_t absmax,
                          uint32_t stream, uint64_t offset) {
  return {count,
          {pointer<const void>(x), x_type},
          {pointer<void>(out), out_type},
          {pointer<uint8_t>(codes), pointer<float>(scales), pointer<uint8_t>(zero_points)},
          {pointer<uint8_t>(dynamic_codes), pointer<float>(absmax)},
          stream,
          offset};
}

cpu::BlockItems in_blocks(const Items& items, int64_t block_size) {
  return {items.data(), static_cast<int64_t>(items.size()), block_size};
}

void quantize_int8(const Cpu& cpu, const Items& items, int64_t block_size, bool stochastic, bool paper, uint64_t seed,
                   uint32_t step, int threads) {
  cpu.kernels().quantize_int8(in_blocks(items, block_size), {stochastic, paper}, {seed, step}, threads);
}

void dequantize_int8(const Cpu& cpu, const Items& items, int64_t block_size, int threads) {
  cpu.kernels().dequantize_int8(in_blocks(items, block_size), threads);
}

void quantize_dynamic8(const Cpu& cpu, const Items& items, int64_t block_size, bool is_signed, int threads) {
  cpu.kernels().quantize_dynamic8(in_blocks(items, block_size), is_signed, threads);
}

void dequantize_dynamic8(const Cpu& cpu, const Items& items, int64_t block_size, bool is_signed, int threads) {
  cpu.kernels().dequantize_dynamic8(in_blocks(items, block_size), is_signed, threads);
}

void ema_int8(const Cpu& cpu, const Items& items, int64_t block_size, float beta, float one_minus_beta, uint64_t seed,
              uint32_t step, int threads) {
  cpu.kernels().ema_int8(in_blocks(items, block_size), {beta, one_minus_beta}, {seed, step}, threads);
}

void ema_sq_dynamic8(const Cpu& cpu, const Items& items, int64_t block_size, float beta, float one_minus_beta,
                     int threads) {
  cpu.kernels().ema_sq_dynamic8(in_blocks(items, block_size), {beta, one_minus_beta}, threads);
}

void adam8(const Cpu& cpu, const Items& items, int64_t block_size, const cpu::Adam8Step& scalars, uint64_t seed,
           uint32_t step, int threads) {
  cpu.kernels().adam8(in_blocks(items, block_size), scalars, {seed, step}, threads);
}

void stochastic_round(const Cpu& cpu, const Items& items, uint64_t seed, uint32_t step, int threads) {
  cpu.kernels().stochastic_round(in_blocks(items, 0), {seed, step}, threads);
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
  pybind11::class_<BlockItem>(module, "BlockItem")
      .def(pybind11::init(&block_item), arg("count"), arg("x") = 0, arg("x_type") = Float::float32,
           arg("out") = 0, arg("out_type") = Float::float32, arg("codes") = 0, arg("scales") = 0,
           arg("zero_points") = 0, arg("dynamic_codes") = 0, arg("absmax") = 0, arg("stream") = 0, arg("offset") = 0);
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
  cpu.def("quantize_int8", &quantize_int8, arg("items"), named, arg("block_size"), arg("stochastic"), arg("paper"),
          arg("seed"), arg("step"), arg("threads"), Unlocked());
  cpu.def("dequantize_int8", &dequantize_int8, arg("items"), named, arg("block_size"), arg("threads"), Unlocked());
  cpu.def("quantize_dynamic8", &quantize_dynamic8, arg("items"), named, arg("block_size"), arg("is_signed"),
          arg("threads"), Unlocked());
  cpu.def("dequantize_dynamic8", &dequantize_dynamic8, arg("items"), named, arg("block_size"), arg("is_signed"),
          arg("threads"), Unlocked());
  cpu.def("ema_int8", &ema_int8, arg("items"), named, arg("block_size"), arg("beta"), arg("one_minus_beta"),
          arg("seed"), arg("step"), arg("threads"), Unlocked());
  cpu.def("ema_sq_dynamic8", &ema_sq_dynamic8, arg("items"), named, arg("block_size"), arg("beta"),
          arg("one_minus_beta"), arg("threads"), Unlocked());
  cpu.def("adam8", &adam8, arg("items"), named, arg("block_size"), arg("scalars"), arg("seed"), arg("step"),
          arg("threads"), Unlocked());
  cpu.def("stochastic_round", &stochastic_round, arg("items"), named, arg("seed"), arg("step"), arg("threads"),
          Unlocked());
}

}  // namespace kpop::bindings
