#include <pybind11/stl.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "bindings.h"

namespace kpop::bindings {
namespace {

void adam(const Cpu& cpu, uintptr_t g, uintptr_t m, uintptr_t v, int64_t count, float beta1, float one_minus_beta1,
          float beta2, float one_minus_beta2, float correction1, float correction2, float eps, float sign,
          int threads) {
  const cpu::AdamStep step{beta1, one_minus_beta1, beta2, one_minus_beta2, correction1, correction2, eps, sign};
  cpu.kernels().adam(pointer<float>(g), pointer<float>(m), pointer<float>(v), count, step, threads);
}

// Matrices in the middle of two factors: their number, rows, columns, and whether each has factors of its own.
using Batch = std::tuple<int64_t, int64_t, int64_t, bool, bool>;

// Factor of one side for matrix i of a batch.
const float* factor(uintptr_t address, int64_t i, int64_t n, bool each) {
  return pointer<const float>(address) + (address && each ? i * n * n : 0);
}

// Long ones first, so that no thread is left with one at the end.
template <class Item>
void sort_by_work(std::vector<Item>& items) {
  const auto work = [](const Item& item) { return item.rows * item.cols * (item.rows + item.cols); };
  std::stable_sort(items.begin(), items.end(), [&](const Item& a, const Item& b) { return work(a) > work(b); });
}

// param, grad, exp_avg, exp_avg_sq, left, right, batch, corrections.
using AdamBatch =
    std::tuple<uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, Batch, float, float>;

void kron_adam(const Cpu& cpu, const std::vector<AdamBatch>& batches, float beta1, float one_minus_beta1, float beta2,
               float one_minus_beta2, float eps, float sign, float lr, float decay, float limit, int threads) {
  std::vector<cpu::KronAdamItem> items;
  for (const auto& [param, grad, exp_avg, exp_avg_sq, left, right, batch, correction1, correction2] : batches) {
    const auto& [count, rows, cols, left_each, right_each] = batch;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = i * rows * cols;
      items.push_back({pointer<float>(param) + at, pointer<const float>(grad) + at, pointer<float>(exp_avg) + at,
                       pointer<float>(exp_avg_sq) + at, factor(left, i, rows, left_each),
                       factor(right, i, cols, right_each), rows, cols, correction1, correction2});
    }
  }
  sort_by_work(items);
  const cpu::AdamStep step{beta1, one_minus_beta1, beta2, one_minus_beta2, 1.0f, 1.0f, eps, sign};
  cpu.kernels().kron_adam(items.data(), static_cast<int64_t>(items.size()), step, {lr, decay, limit}, threads);
}

// The tensor in blocks, left, right, batch, corrections, step.
using Adam8Batch = std::tuple<BlockItem, uintptr_t, uintptr_t, Batch, float, float, uint32_t>;

void kron_adam8(const Cpu& cpu, const std::vector<Adam8Batch>& batches, int64_t block_size,
                const cpu::Adam8Step& scalars, bool original, uint64_t seed, int threads) {
  std::vector<cpu::KronAdam8Item> items;
  for (const auto& [blocks, left, right, batch, correction1, correction2, step] : batches) {
    const auto& [count, rows, cols, left_each, right_each] = batch;
    items.push_back({blocks, pointer<const float>(left), pointer<const float>(right), count, rows, cols, left_each,
                     right_each, correction1, correction2, step});
  }
  sort_by_work(items);
  cpu.kernels().kron_adam8(items.data(), static_cast<int64_t>(items.size()), block_size, scalars, original, seed,
                           threads);
}

// G, left, right, out, batch, keep, weight.
using TwoSidedBatch = std::tuple<uintptr_t, uintptr_t, uintptr_t, uintptr_t, Batch, float, float>;

void two_sided(const Cpu& cpu, const std::vector<TwoSidedBatch>& batches, bool left_transposed, bool right_transposed,
               int threads) {
  std::vector<cpu::TwoSidedItem> items;
  for (const auto& [G, left, right, out, batch, keep, weight] : batches) {
    const auto& [count, rows, cols, left_each, right_each] = batch;
    for (int64_t i = 0; i < count; ++i)
      items.push_back({pointer<const float>(G) + i * rows * cols, factor(left, i, rows, left_each),
                       factor(right, i, cols, right_each), pointer<float>(out) + i * rows * cols, rows, cols,
                       keep, weight});
  }
  sort_by_work(items);
  cpu.kernels().two_sided(items.data(), static_cast<int64_t>(items.size()), left_transposed, right_transposed, threads);
}

// S, G, P, number of gradients, rows, columns, whether each has a P of its own, whether S is of the columns.
using KlFactorBatch = std::tuple<uintptr_t, uintptr_t, uintptr_t, int64_t, int64_t, int64_t, bool, bool>;

void kl_factors(const Cpu& cpu, const std::vector<KlFactorBatch>& batches, float beta, float one_minus_beta, float eps,
                int threads) {
  std::vector<cpu::KlFactorItem> items;
  for (const auto& [S, G, P, count, rows, cols, each, of_columns] : batches) {
    const int64_t order = of_columns ? cols : rows, depth = of_columns ? rows : cols;
    for (int64_t i = 0; i < count; ++i)
      items.push_back({pointer<float>(S) + i * order * order, pointer<const float>(G) + i * rows * cols,
                       factor(P, i, depth, each), rows, cols, of_columns});
  }
  sort_by_work(items);
  cpu.kernels().kl_factors(items.data(), static_cast<int64_t>(items.size()), {beta, one_minus_beta}, eps, threads);
}

// U_L, U_R, main, A, B, C; and the number of matrices, rows, columns, ranks.
using PartAddresses = std::tuple<uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t>;
using PartSizes = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;

std::vector<cpu::BlockParts> parts_of(uintptr_t matrix, const PartAddresses& addresses, const PartSizes& sizes) {
  const auto& [U_L, U_R, main, A, B, C] = addresses;
  const auto& [count, m, n, r, s] = sizes;
  std::vector<cpu::BlockParts> items;
  for (int64_t i = 0; i < count; ++i) {
    const auto part = [i](uintptr_t address, int64_t size) {
      return pointer<float>(address) + (address ? i * size : 0);
    };
    float* whole = part(matrix, m * n);
    items.push_back({whole, whole, part(U_L, m * r), part(U_R, n * s), part(main, r * s), part(A, m * s),
                     part(B, r * n), part(C, m * n), m, n, r, s});
  }
  return items;
}

void block_project(const Cpu& cpu, uintptr_t G, const PartAddresses& addresses, const PartSizes& sizes, int threads) {
  const std::vector<cpu::BlockParts> items = parts_of(G, addresses, sizes);
  cpu.kernels().block_project(items.data(), static_cast<int64_t>(items.size()), threads);
}

void block_lift(const Cpu& cpu, uintptr_t X, const PartAddresses& addresses, const PartSizes& sizes, float alpha,
                float beta, int threads) {
  const std::vector<cpu::BlockParts> items = parts_of(X, addresses, sizes);
  cpu.kernels().block_lift(items.data(), static_cast<int64_t>(items.size()), alpha, beta, threads);
}

}  // namespace

void bind_kron(CpuClass& cpu) {
  using pybind11::arg;
  const pybind11::kw_only scalars;
  cpu.def("adam", &adam, arg("g"), arg("m"), arg("v"), arg("count"), scalars, arg("beta1"), arg("one_minus_beta1"),
          arg("beta2"), arg("one_minus_beta2"), arg("correction1"), arg("correction2"), arg("eps"), arg("sign"),
          arg("threads"), Unlocked());
  cpu.def("kron_adam", &kron_adam, arg("batches"), scalars, arg("beta1"), arg("one_minus_beta1"), arg("beta2"),
          arg("one_minus_beta2"), arg("eps"), arg("sign"), arg("lr"), arg("decay"), arg("limit"), arg("threads"),
          Unlocked());
  cpu.def("kron_adam8", &kron_adam8, arg("batches"), scalars, arg("block_size"), arg("scalars"), arg("original"),
          arg("seed"), arg("threads"), Unlocked());
  cpu.def("kl_factors", &kl_factors, arg("batches"), scalars, arg("beta"), arg("one_minus_beta"), arg("eps"),
          arg("threads"), Unlocked());
  cpu.def("block_project", &block_project, arg("G"), arg("parts"), arg("sizes"), scalars, arg("threads"), Unlocked());
  cpu.def("block_lift", &block_lift, arg("X"), arg("parts"), arg("sizes"), scalars, arg("alpha"), arg("beta"),
          arg("threads"), Unlocked());
  cpu.def("two_sided", &two_sided, arg("batches"), scalars, arg("left_transposed"), arg("right_transposed"),
          arg("threads"), Unlocked());
}

}  // namespace kpop::bindings
