// Blocks of float32, bfloat16 and float16 elements in and out of float32 buffers.
#pragma once
#include "common/half.h"
#include "intrinsics.h"
#include "kernels.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

inline void widen_float16(const uint16_t* x, int64_t n, float* out) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
#endif
  for (; i < n; ++i) out[i] = float_of_float16(x[i]);
}

inline void narrow_float16(const float* x, int64_t n, uint16_t* out) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
#endif
  for (; i < n; ++i) out[i] = float16_of(x[i]);
}

// Elements first ... first + n - 1 in float32: in place if they are, else in the buffer.
inline const float* load(Values x, int64_t first, int64_t n, float* buffer) {
  if (x.type == Float::float32) return static_cast<const float*>(x.data) + first;
  const uint16_t* halves = static_cast<const uint16_t*>(x.data) + first;
  if (x.type == Float::float16)
    widen_float16(halves, n, buffer);
  else
    for (int64_t i = 0; i < n; ++i) buffer[i] = float_of_bfloat16(halves[i]);
  return buffer;
}

// Stores around the caches: the line is not read first, and nothing that will be needed is evicted.
inline void stream(const float* x, int64_t n, float* out) {
  int64_t i = 0;
#if defined(__AVX512F__)
  if (reinterpret_cast<uintptr_t>(out) % 64 == 0)
    for (; i + 16 <= n; i += 16) _mm512_stream_ps(out + i, _mm512_loadu_ps(x + i));
#elif defined(__AVX__)
  if (reinterpret_cast<uintptr_t>(out) % 32 == 0)
    for (; i + 8 <= n; i += 8) _mm256_stream_ps(out + i, _mm256_loadu_ps(x + i));
#elif defined(__SSE2__)
  if (reinterpret_cast<uintptr_t>(out) % 16 == 0)
    for (; i + 4 <= n; i += 4) _mm_stream_ps(out + i, _mm_loadu_ps(x + i));
#endif
  for (; i < n; ++i) out[i] = x[i];
}

// Makes streamed stores visible to other threads.
inline void finish_streaming() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_sfence();
#endif
}

// Writes elements first ... first + n - 1, rounded to nearest even.
inline void store(const float* x, int64_t n, MutableValues out, int64_t first, bool streaming) {
  if (out.type == Float::float32) {
    float* target = static_cast<float*>(out.data) + first;
    if (streaming)
      stream(x, n, target);
    else
      memcpy(target, x, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  uint16_t* target = static_cast<uint16_t*>(out.data) + first;
  if (out.type == Float::float16)
    narrow_float16(x, n, target);
  else
    for (int64_t i = 0; i < n; ++i) target[i] = bfloat16_of(x[i]);
}

// Where n elements can be computed in place, else the buffer that `store` empties.
inline float* store_target(MutableValues out, int64_t first, bool streaming, float* buffer) {
  const bool in_place = out.type == Float::float32 && !streaming;
  return in_place ? static_cast<float*>(out.data) + first : buffer;
}

}  // namespace
}  // namespace kpop::cpu::KPOP_ISA
