// Tensor-core and asynchronous-copy instructions, as csrc/cuda/ptx.cuh calls them on the host.
//
// Lane maps follow the PTX ISA, with g = lane / 4 and t = lane % 4 (a register of 16-bit values holds two
// neighbours in k for A and B). Rows and columns of A (16 x K), B (K x 8) and the accumulator (16 x 8):
//     A  m16n8k16   a[0] (g, 2t)   a[1] (g + 8, 2t)   a[2] (g, 2t + 8)   a[3] (g + 8, 2t + 8)
//     B  m16n8k16   b[0] (2t, g)   b[1] (2t + 8, g)
//     A  m16n8k8    a[0] (g, t)    a[1] (g + 8, t)    a[2] (g, t + 4)    a[3] (g + 8, t + 4)
//     B  m16n8k8    b[0] (t, g)    b[1] (t + 4, g)
//     accumulator   d[0] (g, 2t)   d[1] (g, 2t + 1)   d[2] (g + 8, 2t)   d[3] (g + 8, 2t + 1)
// Products are exact and summed in order of k in float. The hardware sums in an order of its own, so the last
// bits of a result are not what a device gives.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "block.h"
#include "float16_types.h"
#include "warp.h"

namespace emulation {

struct Operands {
  std::uint32_t a[4];
  std::uint32_t b[2];
};

// How the values of a row of A or a column of B lie in the registers of its four lanes.
template <typename Format>
struct SixteenBit {
  static constexpr int depth = 16;
  static int lane_in_group(int k) { return k % 8 / 2; }
  static float value(std::uint32_t word, int k) {
    return Format::widen(static_cast<std::uint16_t>(word >> 16 * (k % 2)));
  }
};

struct Tf32 {
  static constexpr int depth = 8;
  static int lane_in_group(int k) { return k % 4; }
  // The hardware does not read the low 13 bits.
  static float value(std::uint32_t word, int) { return float_from_bits(word & 0xffffe000u); }
};

template <typename Layout>
void mma(const Collective& collective, float (&d)[4], const std::uint32_t (&a)[4],
         const std::uint32_t (&b)[2]) {
  exchange(collective, 0xffffffffu, Operands{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
  const int lane = block.lane();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i / 2);
    const int column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < Layout::depth; ++k) {
      const int half = k / (Layout::depth / 2);
      const auto of_row = block.published_by<Operands>(row % 8 * 4 + Layout::lane_in_group(k));
      const auto of_column = block.published_by<Operands>(column * 4 + Layout::lane_in_group(k));
      d[i] =
          std::fma(Layout::value(of_row.a[row / 8 + 2 * half], k), Layout::value(of_column.b[half], k), d[i]);
    }
  }
}

// Matrix m of the Count 8 x 8 matrices has its rows at the addresses of lanes 8m ... 8m + 7. Lane l receives
// elements (l / 4, 2 (l % 4)) and the next in the row or, transposed, the same elements of the transpose.
template <int Count, bool Transposed>
void load_matrices(const Collective& collective, std::uint32_t (&registers)[Count], const void* row) {
  if (block.lane() < 8 * Count && reinterpret_cast<std::uintptr_t>(row) % 16)
    block.fail(Fault::misaligned_access, collective.text() + " needs rows at multiples of 16 bytes");
  exchange(collective, 0xffffffffu, row);
  const int lane = block.lane();
  for (int matrix = 0; matrix < Count; ++matrix) {
    std::uint16_t elements[2];
    for (int i = 0; i < 2; ++i) {
      const int across = lane / 4, along = lane % 4 * 2 + i;
      const auto* source =
          block.published_by<const std::uint16_t*>(8 * matrix + (Transposed ? along : across));
      elements[i] = source[Transposed ? across : along];
    }
    registers[matrix] = elements[0] | std::uint32_t{elements[1]} << 16;
  }
}

using Accumulator = float (&)[4];
using RegistersA = const std::uint32_t (&)[4];
using RegistersB = const std::uint32_t (&)[2];

inline void mma_fp16(Accumulator d, RegistersA a, RegistersB b, EMULATION_CALLER) {
  mma<SixteenBit<HalfFormat>>({"mma.m16n8k16.fp16", file, line}, d, a, b);
}
inline void mma_bf16(Accumulator d, RegistersA a, RegistersB b, EMULATION_CALLER) {
  mma<SixteenBit<Bfloat16Format>>({"mma.m16n8k16.bf16", file, line}, d, a, b);
}
inline void mma_tf32(Accumulator d, RegistersA a, RegistersB b, EMULATION_CALLER) {
  mma<Tf32>({"mma.m16n8k8.tf32", file, line}, d, a, b);
}

// Ties away from zero; infinities and NaN keep their class.
inline std::uint32_t to_tf32(float value) {
  const std::uint32_t bits = float_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffe000u;
  return (bits + 0x1000u) & 0xffffe000u;
}

template <int Count>
void ldmatrix(std::uint32_t (&registers)[Count], const void* row, EMULATION_CALLER) {
  load_matrices<Count, false>({"ldmatrix", file, line}, registers, row);
}
template <int Count>
void ldmatrix_trans(std::uint32_t (&registers)[Count], const void* row, EMULATION_CALLER) {
  load_matrices<Count, true>({"ldmatrix.trans", file, line}, registers, row);
}

inline void cp_async(void* destination, const void* source, unsigned source_bytes, EMULATION_CALLER) {
  const Collective instruction{"cp.async", file, line};
  constexpr unsigned bytes = 16;
  const auto misaligned = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % bytes;
  };
  if (misaligned(destination) || misaligned(source))
    block.fail(Fault::misaligned_access,
               instruction.text() + " needs both addresses at multiples of 16 bytes");
  Thread& self = block.current();
  self.async_copies.push_back({static_cast<unsigned char*>(destination),
                               static_cast<const unsigned char*>(source), std::min(source_bytes, bytes),
                               bytes, self.async_group});
}

inline void cp_async_commit() { ++block.current().async_group; }

// Completes all committed groups of the calling thread but the last `pending`.
inline void cp_async_wait(int pending) {
  Thread& self = block.current();
  const auto done = [&](const AsyncCopy& copy) { return copy.group < self.async_group - pending; };
  for (const AsyncCopy& copy : self.async_copies) {
    if (!done(copy)) continue;
    std::memcpy(copy.destination, copy.source, copy.source_bytes);
    std::memset(copy.destination + copy.source_bytes, 0, copy.total_bytes - copy.source_bytes);
  }
  self.async_copies.erase(std::remove_if(self.async_copies.begin(), self.async_copies.end(), done),
                          self.async_copies.end());
}

}  // namespace emulation
