// Kernels that exercise the execution model, some of them with a bug that must be reported.
#include <ptx.cuh>

using u64 = unsigned long long;

__global__ void coordinates(int* out) {
  const int block_index = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int thread_index = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const int threads = blockDim.x * blockDim.y * blockDim.z;
  int* mine = out + 6 * (block_index * threads + thread_index);
  mine[0] = blockIdx.x, mine[1] = blockIdx.y, mine[2] = blockIdx.z;
  mine[3] = threadIdx.x, mine[4] = threadIdx.y, mine[5] = threadIdx.z;
}

template <typename T>
__global__ void reverse_static(T* data) {
  __shared__ T staged[64];
  staged[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = staged[63 - threadIdx.x];
}

__global__ void reverse_dynamic(float* data, int n) {
  KPOP_DYNAMIC_SHARED(float, staged);
  staged[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = staged[n - 1 - threadIdx.x];
}

__global__ void read_uninitialized(unsigned* out) {
  __shared__ unsigned fixed[32];
  KPOP_DYNAMIC_SHARED(unsigned, dynamic);
  out[64 * blockIdx.x + threadIdx.x] = fixed[threadIdx.x];
  out[64 * blockIdx.x + 32 + threadIdx.x] = dynamic[threadIdx.x];
  fixed[threadIdx.x] = dynamic[threadIdx.x] = 0;
}

__global__ void barrier_votes(const int* flags, int* out) {
  out[3 * threadIdx.x] = __syncthreads_count(flags[threadIdx.x]);
  out[3 * threadIdx.x + 1] = __syncthreads_and(flags[threadIdx.x]);
  out[3 * threadIdx.x + 2] = __syncthreads_or(flags[threadIdx.x]);
}

template <typename T>
__global__ void shuffles(const T* in, T* out, int operand, int width) {
  const T value = in[threadIdx.x];
  out[threadIdx.x] = __shfl_sync(0xffffffffu, value, operand, width);
  out[32 + threadIdx.x] = __shfl_up_sync(0xffffffffu, value, operand, width);
  out[64 + threadIdx.x] = __shfl_down_sync(0xffffffffu, value, operand, width);
  out[96 + threadIdx.x] = __shfl_xor_sync(0xffffffffu, value, operand, width);
}

__global__ void votes(const int* in, unsigned* out, unsigned mask) {
  if (!(mask >> threadIdx.x & 1)) return;
  const int value = in[threadIdx.x];
  unsigned* mine = out + 12 * threadIdx.x;
  mine[0] = __ballot_sync(mask, value);
  mine[1] = __any_sync(mask, value);
  mine[2] = __all_sync(mask, value);
  mine[3] = __match_any_sync(mask, value);
  mine[4] = __reduce_add_sync(mask, value);
  mine[5] = __reduce_min_sync(mask, value);
  mine[6] = __reduce_max_sync(mask, value);
  mine[7] = __reduce_min_sync(mask, static_cast<unsigned>(value));
  mine[8] = __reduce_max_sync(mask, static_cast<unsigned>(value));
  mine[9] = __reduce_and_sync(mask, static_cast<unsigned>(value));
  mine[10] = __reduce_or_sync(mask, static_cast<unsigned>(value));
  mine[11] = __reduce_xor_sync(mask, static_cast<unsigned>(value));
}

template <typename T>
__global__ void atomics(const T* in, T* out) {
  const T value = in[blockIdx.x * blockDim.x + threadIdx.x];
  atomicAdd(out, value);
  if constexpr (!std::is_floating_point_v<T>) {
    atomicMin(out + 1, value);
    atomicMax(out + 2, value);
    T seen = out[3];
    T assumed;
    do {
      assumed = seen;
      seen = atomicCAS(out + 3, assumed, assumed + value);
    } while (seen != assumed);
  }
  if (value == in[0]) out[5] = atomicExch(out + 4, value);
}

__global__ void racy_neighbour(const float* in, float* out) {
  __shared__ float staged[256];
  staged[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = staged[threadIdx.x ^ 1];
}

__global__ void barrier_for_some(int reaching) {
  if (static_cast<int>(threadIdx.x) < reaching) __syncthreads();
}

__global__ void barrier_in_both_branches() {
  if (threadIdx.x % 2) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void shuffle_for_some(int* data, int reaching, unsigned mask) {
  const int lane = threadIdx.x;
  if (lane < reaching) data[lane] = __shfl_xor_sync(mask, data[lane], 1);
}

__global__ void shuffle_beside_barrier(int* data) {
  if (threadIdx.x % 32 == 5) __syncthreads();
  data[threadIdx.x] = __shfl_sync(0xffffffffu, data[threadIdx.x], 0);
}

__global__ void unequal_masks(int* data) {
  data[threadIdx.x] = __ballot_sync(threadIdx.x < 16 ? 0xffffffffu : 0xffff0000u, 1);
}

__global__ void load_vector(const float* in, float* out) { *out = reinterpret_cast<const float4*>(in)->w; }

__global__ void index_past_end(int* out, int index) {
  __shared__ int small[32];
  small[index] = 1;
  *out = small[0];
}

__global__ void dynamic_past_end(int index) {
  KPOP_DYNAMIC_SHARED(unsigned char, bytes);
  bytes[index] = 0;
}

__global__ void deep_stack(int* out) {
  volatile char local[140000];
  for (int i = 0; i < 140000; ++i) local[i] = 1;
  *out = local[threadIdx.x];
}

struct Pair {
  int low;
  float high;
};
__global__ void scalars(Pair pair, bool flag, long long wide, const void* missing, double* out) {
  out[0] = pair.low, out[1] = pair.high, out[2] = flag;
  out[3] = static_cast<double>(wide), out[4] = missing == nullptr;
}
