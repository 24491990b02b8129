// Splitting a range of independent work over threads.
#pragma once
#include <cstdint>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace kpop::cpu {

// True in a child process forked after this library was loaded: OpenMP's threads do not survive a fork, and a
// parallel region in the child would wait for them forever.
bool forked();

// Memory of this thread for `count` floats, aligned to 64 bytes, kept for the next call: fresh pages would cost more
// than the work on small matrices.
float* workspace(int64_t count);

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

// Threads that work on one problem together.
struct Team {
  int rank = 0;
  int size = 1;

  void wait() const {
#ifdef _OPENMP
    if (size > 1) {
#pragma omp barrier
    }
#endif
  }
};

// Calls body(team) once on each of `threads` threads.
template <class Body>
inline void run_team(int threads, const Body& body) {
#ifdef _OPENMP
  if (threads > 1 && !forked()) {
#pragma omp parallel num_threads(threads)
    body(Team{omp_get_thread_num(), omp_get_num_threads()});
    return;
  }
#else
  static_cast<void>(threads);
#endif
  body(Team{});
}

// Calls body(item, workspace, team) for every item, `floats` being the workspace it needs: each thread takes one
// item after another if there are enough of them, otherwise all threads share each item. No result may depend on it.
template <class Body>
inline void for_each_item(int64_t items, int64_t floats, int threads, const Body& body) {
  if (items < threads) {
    float* shared = workspace(floats);
    run_team(threads, [=](Team team) {
      for (int64_t item = 0; item < items; ++item) {
        body(item, shared, team);
        team.wait();
      }
    });
    return;
  }
  int64_t next = 0;
  int64_t* counter = &next;
  run_team(threads, [=](Team) {
    float* own = workspace(floats);
    while (true) {
      const int64_t item = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
      if (item >= items) return;
      body(item, own, Team{});
    }
  });
}

}  // namespace kpop::cpu
