// Walking a tensor block by block on several threads. A span is one block or several small ones, so that the random
// numbers of a span are always made by full groups.
#pragma once
#include "kernels.h"
#include "parallel.h"
#include "random16.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

constexpr int64_t SHORTEST_SPAN = 256;
constexpr int64_t SPANS_A_GRAIN = 16;

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

inline int64_t span_size(int64_t block_size) {
  return block_size >= SHORTEST_SPAN ? block_size : SHORTEST_SPAN / block_size * block_size;
}

// Calls visit(block, first, n) for every block with its number, first element and size.
template <class Visit>
inline void for_each_block(Blocks blocks, int64_t begin, int64_t end, const Visit& visit) {
  for (int64_t first = begin; first < end; first += blocks.block_size)
    visit(first / blocks.block_size, first, smaller(blocks.block_size, end - first));
}

// Calls body(begin, end) on parts of the tensor that begin with a span.
template <class Body>
inline void for_each_part(Blocks blocks, int threads, const Body& body) {
  parallel_for(blocks.count, span_size(blocks.block_size) * SPANS_A_GRAIN, threads, body);
}

// Calls visit(block, first, n, random) for every block; `random` is null unless wanted.
template <class Visit>
inline void for_each_random_block(Blocks blocks, int threads, const RandomStream* stream, const Visit& visit) {
  for_each_part(blocks, threads, [&](int64_t begin, int64_t end) {
    alignas(64) uint16_t buffer[LARGEST_BLOCK + RANDOM_SLACK];
    const RoundKeys keys = stream ? round_keys(*stream) : RoundKeys{};
    const int64_t span = span_size(blocks.block_size);
    for (int64_t start = begin; start < end; start += span) {
      const int64_t size = smaller(span, end - start);
      const uint16_t* random =
          stream ? random16(keys, stream->offset + static_cast<uint64_t>(start), size, buffer) : nullptr;
      for_each_block(blocks, start, start + size, [&](int64_t block, int64_t first, int64_t n) {
        visit(block, first, n, random ? random + (first - start) : nullptr);
      });
    }
  });
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
