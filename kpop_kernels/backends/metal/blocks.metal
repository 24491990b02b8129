// How threads share a tensor that is cut into blocks.
//
//   elements | block 0            | block 1            | ... | short last block |
//   threads  | 0 ... t - 1        | t ... 2t - 1       | ...                        8 elements a thread
//
// A block has t = block size / 8 threads, a threadgroup has whole blocks. A thread keeps its elements in
// registers, so that every byte is moved once.
#include "exact.metal"

constant constexpr uint kElements = 8;
constant constexpr uint kMaxThreads = 512;  // a block of 4096
constant constexpr uint kLanes = 32;

// The elements of a thread. Past the end of the tensor there are none.
struct Share {
  ulong first, block;
  uint count;
  uint threads;  // of the block
  uint place;    // of the thread within them
};

// prm: number of elements, elements of a block, ...
static inline Share share_of(constant long* prm, uint group, uint thread_id, uint group_threads) {
  Share share;
  share.threads = uint(prm[1]) / kElements;
  const uint block = thread_id / share.threads;
  share.place = thread_id - block * share.threads;
  share.block = ulong(group) * ulong(group_threads / share.threads) + block;
  share.first = share.block * ulong(prm[1]) + share.place * kElements;
  const ulong count = ulong(prm[0]);
  share.count = share.first < count ? uint(min(count - share.first, ulong(kElements))) : 0u;
  return share;
}

// Whether the thread writes what a block has once.
static inline bool leads(Share share) {
  return share.place == 0u && share.count > 0u;
}

// The bits of a thread's elements as floats; zeros, which change no block's range, fill up.
template <typename T>
static inline void load(device const T* x, Share share, thread uint* bits) {
  for (uint i = 0u; i < kElements; ++i) {
    bits[i] = i < share.count ? float_bits(x[share.first + i]) : 0u;
  }
}

template <typename T>
static inline void store_all(device T* out, Share share, thread const uint* bits) {
  for (uint i = 0u; i < kElements; ++i) {
    if (i < share.count) store(out, share.first + i, bits[i]);
  }
}

// The largest value that a thread of the block has, component by component. All threads of the group call
// this, once. `partial` holds kMaxThreads values.
template <typename V>
static inline V block_max(V largest, threadgroup V* partial, Share share, uint thread_id) {
  // A power of two that divides the threads of a block: lanes of an aligned run of this length share a block.
  const uint run = min(share.threads & (0u - share.threads), kLanes);
  for (uint distance = 1u; distance < run; distance <<= 1) {
    largest = max(largest, simd_shuffle_xor(largest, ushort(distance)));
  }
  if (run == share.threads) return largest;
  if (share.place % run == 0u) partial[thread_id / run] = largest;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint begin = (thread_id - share.place) / run, end = begin + share.threads / run;
  for (uint i = begin; i < end; ++i) {
    largest = max(largest, partial[i]);
  }
  return largest;
}
