// Splitting a range of independent work over threads.
#pragma once
#include <cstdint>

namespace kpop::cpu {

// True in a child process forked after this library was loaded: OpenMP's threads do not survive a fork, and a
// parallel region in the child would wait for them forever.
bool forked();

// Calls body(begin, end) on disjoint parts of [0, count), on at most `threads` threads, each part a multiple of
// `grain` long except the last.
template <class Body>
inline void parallel_for(int64_t count, int64_t grain, int threads, const Body& body) {
  const int64_t grains = (count + grain - 1) / grain;
  if (threads > grains) threads = static_cast<int>(grains);
  if (threads <= 1 || forked()) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int part = 0; part < threads; ++part) {
    const int64_t begin = grains * part / threads * grain;
    const int64_t end = grains * (part + 1) / threads * grain;
    body(begin, end < count ? end : count);
  }
}

}  // namespace kpop::cpu
