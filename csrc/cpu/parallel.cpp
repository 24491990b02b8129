#include "parallel.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace kpop::cpu {
namespace {

bool in_child = false;

#if defined(__unix__) || defined(__APPLE__)
const int registered = pthread_atfork(nullptr, nullptr, [] { in_child = true; });
#endif

}  // namespace

bool forked() { return in_child; }

}  // namespace kpop::cpu
