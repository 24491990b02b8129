#include "parallel.h"

#include <cstdlib>
#include <new>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace kpop::cpu {
namespace {

bool in_child = false;

#if defined(__unix__) || defined(__APPLE__)
const int registered = pthread_atfork(nullptr, nullptr, [] { in_child = true; });
#endif

struct Workspace {
  float* data = nullptr;
  int64_t capacity = 0;
  ~Workspace() { std::free(data); }
};

}  // namespace

bool forked() { return in_child; }

float* workspace(int64_t count) {
  thread_local Workspace own;
  if (count > own.capacity) {
    std::free(own.data);
    own.capacity = 0;
    const size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
    own.data = static_cast<float*>(std::aligned_alloc(64, bytes));
    if (!own.data) throw std::bad_alloc();
    own.capacity = count;
  }
  return own.data;
}

}  // namespace kpop::cpu
