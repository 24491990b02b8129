// The vector intrinsics of x86 processors.
#pragma once

#if defined(__x86_64__) || defined(_M_X64)
// Some releases of GCC warn about the deliberately undefined operands in their own header.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif
