#include "absmax_quantize.h"

#include <stdexcept>
#include <string>

#include "absmax_quantize.cuh"

namespace kpop {
namespace {

template <typename T, int BLOCK>
void launch(const void* x, int8_t* codes, float* scales, int64_t n, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>((n + AbsmaxQuantize::elements - 1) / AbsmaxQuantize::elements);
  absmax_quantize<T, BLOCK>
      <<<grid, AbsmaxQuantize::threads, 0, stream>>>(static_cast<const T*>(x), codes, scales, n);
}

template <typename T>
void launch_block_size(const void* x, int8_t* codes, float* scales, int64_t n, int block_size,
                       cudaStream_t stream) {
  switch (block_size) {
    case 32:
      return launch<T, 32>(x, codes, scales, n, stream);
    case 64:
      return launch<T, 64>(x, codes, scales, n, stream);
    case 128:
      return launch<T, 128>(x, codes, scales, n, stream);
    case 256:
      return launch<T, 256>(x, codes, scales, n, stream);
    case 512:
      return launch<T, 512>(x, codes, scales, n, stream);
    case 1024:
      return launch<T, 1024>(x, codes, scales, n, stream);
    case 2048:
      return launch<T, 2048>(x, codes, scales, n, stream);
  }
  throw std::invalid_argument("block_size must be a power of two from 32 to 2048, not " +
                              std::to_string(block_size));
}

}  // namespace

void absmax_quantize_cuda(const void* x, ElementType type, int8_t* codes, float* scales, int64_t n,
                          int block_size, void* stream) {
  if (n == 0) return;
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  switch (type) {
    case ElementType::float32:
      launch_block_size<float>(x, codes, scales, n, block_size, cuda_stream);
      break;
    case ElementType::float16:
      launch_block_size<__half>(x, codes, scales, n, block_size, cuda_stream);
      break;
    case ElementType::bfloat16:
      launch_block_size<__nv_bfloat16>(x, codes, scales, n, block_size, cuda_stream);
      break;
  }
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess)
    throw std::runtime_error(std::string("absmax_quantize was not launched: ") + cudaGetErrorString(status));
}

}  // namespace kpop
