// Walking tensors block by block on several threads. A span is one block or several small ones, so that the random
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
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

inline int64_t span_size(int64_t block_size) {
  return block_size >= SHORTEST_SPAN ? block_size : SHORTEST_SPAN / block_size * block_size;
}

// Calls visit(block, first, n) for every block with its number, first element and size.
template <class Visit>
inline void for_each_block(int64_t block_size, int64_t begin, int64_t end, const Visit& visit) {
  for (int64_t first = begin; first < end; first += block_size)
    visit(first / block_size, first, smaller(block_size, end - first));
}

// Calls body(item, begin, end) on parts of the tensors that begin with a span.
template <class Body>
inline void for_each_part(BlockItems items, int threads, const Body& body) {
  const int64_t grain = span_size(items.block_size) * SPANS_A_GRAIN;
  const auto grains = [=](const BlockItem& item) { return (item.count + grain - 1) / grain; };
  int64_t total = 0;
  for (int64_t i = 0; i < items.count; ++i) total += grains(items.items[i]);
  parallel_for(total, 1, threads, [&](int64_t begin, int64_t end) {
    int64_t before = 0;
    for (const BlockItem* item = items.items; before < end; before += grains(*item++)) {
      const int64_t first = larger(begin - before, 0) * grain;
      const int64_t last = smaller((end - before) * grain, item->count);
      if (first < last) body(*item, first, last);
    }
  });
}

// Calls visit(block, first, n, random) for every block of the part [begin, end) of a tensor, which begins with a span;
// `random` is null without a key.
template <class Visit>
inline void visit_random_blocks(const BlockItem& item, int64_t begin, int64_t end, int64_t block_size,
                                const RandomKey* key, const Visit& visit) {
  alignas(64) uint16_t buffer[LARGEST_BLOCK + RANDOM_SLACK];
  const RoundKeys keys = key ? round_keys({key->seed, key->step, item.stream, item.offset}) : RoundKeys{};
  const int64_t span = span_size(block_size);
  for (int64_t start = begin; start < end; start += span) {
    const int64_t size = smaller(span, end - start);
    const uint16_t* random = key ? random16(keys, item.offset + static_cast<uint64_t>(start), size, buffer) : nullptr;
    for_each_block(block_size, start, start + size, [&](int64_t block, int64_t first, int64_t n) {
      visit(block, first, n, random ? random + (first - start) : nullptr);
    });
  }
}

// Calls visit(item, block, first, n, random) for every block; `random` is null without a key.
template <class Visit>
inline void for_each_random_block(BlockItems items, int threads, const RandomKey* key, const Visit& visit) {
  for_each_part(items, threads, [&](const BlockItem& item, int64_t begin, int64_t end) {
    visit_random_blocks(item, begin, end, items.block_size, key,
                        [&](int64_t block, int64_t first, int64_t n, const uint16_t* random) {
                          visit(item, block, first, n, random);
                        });
  });
}

inline bool beyond_cache(BlockItems items) {
  int64_t count = 0;
  for (int64_t i = 0; i < items.count; ++i) count += items.items[i].count;
  return count * static_cast<int64_t>(sizeof(float)) > last_level_cache_bytes();
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
