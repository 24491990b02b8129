// What kernels need and CUDA C++ has no name for: tensor-core, asynchronous-copy and some arithmetic instructions,
// and dynamic shared memory. nvcc compiles the PTX. Any other compiler is a test's that emulates the device on the host,
// with tests/emulation/cuda/include before the toolkit's headers.
//
// The layout of the registers is that of the PTX ISA; tests/emulation/cuda/mma.h spells it out.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#if defined(__CUDACC__)
#define KPOP_PTX(assembly, emulation) assembly
#define KPOP_DYNAMIC_SHARED(type, name)                                \
  extern __shared__ __align__(16) unsigned char kpop_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(kpop_dynamic_shared)
#else
#include <ptx_emulation.h>
#define KPOP_PTX(assembly, emulation) emulation
#define KPOP_DYNAMIC_SHARED(type, name) \
  type* const name = reinterpret_cast<type*>(emulation::DynamicSharedMemory::active)
#endif

namespace kpop {

// clang-format off: it takes the operands of assembly apart.

using RegistersA = const uint32_t (&)[4];
using RegistersB = const uint32_t (&)[2];

// Operands of "d <- a b + d" with float accumulators: four registers of a, two of b.
#define KPOP_MMA_OPERANDS                                                               \
  "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                     \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                  \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])

__device__ __forceinline__ void mma_m16n8k16_fp16(float (&d)[4], RegistersA a, RegistersB b) {
  KPOP_PTX(asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " KPOP_MMA_OPERANDS),
           emulation::mma_fp16(d, a, b));
}

__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], RegistersA a, RegistersB b) {
  KPOP_PTX(asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 " KPOP_MMA_OPERANDS),
           emulation::mma_bf16(d, a, b));
}

// The low 13 bits of a and b are not read: round with to_tf32 first where that matters.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], RegistersA a, RegistersB b) {
  KPOP_PTX(asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 " KPOP_MMA_OPERANDS),
           emulation::mma_tf32(d, a, b));
}
#undef KPOP_MMA_OPERANDS

// Rounds to the 10-bit fraction of tf32, ties away from zero.
__device__ __forceinline__ uint32_t to_tf32(float value) {
  uint32_t bits;
  KPOP_PTX(asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value)), bits = emulation::to_tf32(value));
  return bits;
}

// The rounded product, where subnormal factors and a subnormal product count as 0.
__device__ __forceinline__ float multiply_flushed(float a, float b) {
  float product;
  KPOP_PTX(asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b)),
           product = emulation::multiply_flushed(a, b));
  return product;
}

// The same number, of which the compiler knows nothing: what follows from it is computed anew, not kept in registers.
__device__ __forceinline__ int unknown(int number) {
  KPOP_PTX(asm volatile("" : "+r"(number)), static_cast<void>(number));
  return number;
}

// The low half of c above a and b, each clamped to a byte.
__device__ __forceinline__ uint32_t pack_saturated(int a, int b, uint32_t c) {
  uint32_t packed;
  KPOP_PTX(asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(packed) : "r"(a), "r"(b), "r"(c)),
           packed = emulation::pack_saturated(a, b, c));
  return packed;
}

// Loads one, two or four 8 x 8 matrices of 16-bit elements from shared memory; lane 8m + r gives the address
// of row r of matrix m (addresses of further lanes are ignored). Rows lie at multiples of 16 bytes.
#if defined(__CUDACC__)
#define KPOP_SHARED_ADDRESS(pointer) static_cast<uint32_t>(__cvta_generic_to_shared(pointer))
#endif

__device__ __forceinline__ void ldmatrix(uint32_t (&r)[1], const void* row) {
  KPOP_PTX(asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                        : "=r"(r[0]) : "r"(KPOP_SHARED_ADDRESS(row)) : "memory"),
           emulation::ldmatrix(r, row));
}

__device__ __forceinline__ void ldmatrix(uint32_t (&r)[2], const void* row) {
  KPOP_PTX(asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                        : "=r"(r[0]), "=r"(r[1]) : "r"(KPOP_SHARED_ADDRESS(row)) : "memory"),
           emulation::ldmatrix(r, row));
}

__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], const void* row) {
  KPOP_PTX(asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                        : "r"(KPOP_SHARED_ADDRESS(row)) : "memory"),
           emulation::ldmatrix(r, row));
}

__device__ __forceinline__ void ldmatrix_trans(uint32_t (&r)[1], const void* row) {
  KPOP_PTX(asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                        : "=r"(r[0]) : "r"(KPOP_SHARED_ADDRESS(row)) : "memory"),
           emulation::ldmatrix_trans(r, row));
}

__device__ __forceinline__ void ldmatrix_trans(uint32_t (&r)[2], const void* row) {
  KPOP_PTX(asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                        : "=r"(r[0]), "=r"(r[1]) : "r"(KPOP_SHARED_ADDRESS(row)) : "memory"),
           emulation::ldmatrix_trans(r, row));
}

__device__ __forceinline__ void ldmatrix_trans(uint32_t (&r)[4], const void* row) {
  KPOP_PTX(asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                        : "r"(KPOP_SHARED_ADDRESS(row)) : "memory"),
           emulation::ldmatrix_trans(r, row));
}

// Starts copying 16 bytes from global to shared memory: source_bytes of them, then zeros.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, uint32_t source_bytes = 16) {
  KPOP_PTX(asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                        :: "r"(KPOP_SHARED_ADDRESS(shared)), "l"(global), "r"(source_bytes) : "memory"),
           emulation::cp_async(shared, global, source_bytes));
}

// Closes the group of copies this thread has started since the last commit.
__device__ __forceinline__ void cp_async_commit() {
  KPOP_PTX(asm volatile("cp.async.commit_group;" ::: "memory"), emulation::cp_async_commit());
}

// Waits until at most `pending` of this thread's groups are unfinished. Other threads' copies need a barrier.
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
  KPOP_PTX(asm volatile("cp.async.wait_group %0;" :: "n"(pending) : "memory"),
           emulation::cp_async_wait(pending));
}

// clang-format on

}  // namespace kpop
