// Kernels that call every instruction of csrc/cuda/ptx.cuh, for the emulation and for nvcc.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <ptx.cuh>

__device__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], __half) {
  kpop::mma_m16n8k16_fp16(d, a, b);
}
__device__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], __nv_bfloat16) {
  kpop::mma_m16n8k16_bf16(d, a, b);
}

__device__ void store_accumulator(float* c, const float (&d)[4]) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  for (int i = 0; i < 4; ++i) c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = d[i];
}

// c (16 x 8) += a (16 x 16) b (16 x 8), all row-major; fragments by the element indices of the PTX ISA.
template <typename T>
__global__ void multiply(const T* a, const T* b, float* c) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  alignas(4) T fragment_a[8], fragment_b[4];
  for (int i = 0; i < 8; ++i) {
    const int row = i < 2 || (i >= 4 && i < 6) ? g : g + 8;
    fragment_a[i] = a[row * 16 + (i < 4 ? 2 * t + i % 2 : 2 * t + i % 2 + 8)];
  }
  for (int i = 0; i < 4; ++i) fragment_b[i] = b[(i < 2 ? 2 * t + i % 2 : 2 * t + i % 2 + 8) * 8 + g];
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
  mma(d, reinterpret_cast<uint32_t (&)[4]>(fragment_a), reinterpret_cast<uint32_t (&)[2]>(fragment_b), T());
  store_accumulator(c, d);
}

// The same with fragments that ldmatrix takes from shared memory, b through the transposing form.
template <typename T>
__global__ void multiply_ldmatrix(const T* a, const T* b, float* c) {
  __shared__ __align__(16) T shared_a[16 * 16], shared_b[16 * 8];
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) shared_a[i] = a[i];
  for (int i = lane; i < 128; i += 32) shared_b[i] = b[i];
  __syncwarp();
  uint32_t fragment_a[4], fragment_b[2];
  kpop::ldmatrix(fragment_a, &shared_a[lane % 16 * 16 + lane / 16 * 8]);
  kpop::ldmatrix_trans(fragment_b, &shared_b[lane % 16 * 8]);
  float d[4] = {};
  mma(d, fragment_a, fragment_b, T());
  store_accumulator(c, d);
}

__global__ void multiply_tf32(const float* a, const float* b, float* c, bool round) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  uint32_t fragment_a[4], fragment_b[2];
  for (int i = 0; i < 4; ++i) {
    const float value = a[(g + 8 * (i % 2)) * 8 + t + 4 * (i / 2)];
    fragment_a[i] = round ? kpop::to_tf32(value) : __float_as_uint(value);
  }
  for (int i = 0; i < 2; ++i) {
    const float value = b[(t + 4 * i) * 8 + g];
    fragment_b[i] = round ? kpop::to_tf32(value) : __float_as_uint(value);
  }
  float d[4] = {};
  kpop::mma_m16n8k8_tf32(d, fragment_a, fragment_b);
  store_accumulator(c, d);
}

template <int count>
__global__ void load_matrices(const unsigned short* in, uint32_t* plain, uint32_t* transposed, int offset) {
  __shared__ __align__(16) unsigned short rows[32 * 8 + 8];
  for (int i = threadIdx.x; i < 256; i += 32) rows[i] = in[i];
  __syncwarp();
  uint32_t registers[count];
  kpop::ldmatrix(registers, &rows[threadIdx.x * 8 + offset]);
  for (int i = 0; i < count; ++i) plain[threadIdx.x * count + i] = registers[i];
  kpop::ldmatrix_trans(registers, &rows[threadIdx.x * 8]);
  for (int i = 0; i < count; ++i) transposed[threadIdx.x * count + i] = registers[i];
}

template <int pending>
__global__ void copy_groups(const float4* in, float4* out, uint32_t bytes, int offset) {
  __shared__ float4 staged[3 * 32 + 1];
  for (int group = 0; group < 3; ++group) {
    auto* to = reinterpret_cast<unsigned char*>(&staged[32 * group + threadIdx.x]) + offset;
    kpop::cp_async_16(to, &in[32 * group + threadIdx.x], bytes);
    if (group < 2) kpop::cp_async_commit();
  }
  if (pending == 0) kpop::cp_async_commit();
  kpop::cp_async_wait<pending>();
  __syncthreads();
  for (int group = 0; group < 3; ++group)
    out[32 * group + threadIdx.x] = staged[32 * group + 31 - threadIdx.x];
}

__global__ void mma_for_some(float* c) {
  float d[4] = {};
  if (threadIdx.x != 7) kpop::mma_m16n8k16_fp16(d, {1, 2, 3, 4}, {5, 6});
  c[threadIdx.x] = d[0];
}

__global__ void round_tf32(const float* in, uint32_t* out) {
  out[threadIdx.x] = kpop::to_tf32(in[threadIdx.x]);
}

__global__ void arithmetic(const float* a, const float* b, float* products, const int* codes, uint32_t* packed) {
  const int i = threadIdx.x;
  products[i] = kpop::multiply_flushed(a[i], b[i]);
  packed[i] = kpop::pack_saturated(codes[2 * i], codes[2 * i + 1], static_cast<uint32_t>(i) << 8 | 0xab000012u);
}
