// Static and dynamic shared memory of the running block, poisoned before every block.
//
// `__shared__` variables are the only thread_local ones in an emulated module, so the module's TLS segment is
// the block's static shared memory: it can be found and filled as a whole, templates included.
#pragma once

#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "block.h"

#define __shared__ static thread_local

namespace emulation {

// All ones: NaN in every floating-point format, -1 in every integer.
constexpr int poison_byte = 0xFF;

// Writing it makes the C library allocate the segment, which otherwise happens at the first use.
inline thread_local volatile char shared_memory_anchor = 0;

struct StaticSharedMemory {
  unsigned char* data = nullptr;
  std::size_t bytes = 0;

  static StaticSharedMemory find() {
    shared_memory_anchor = 1;
    StaticSharedMemory found;
    dl_iterate_phdr(&StaticSharedMemory::visit, &found);
    return found;
  }

 private:
  static int visit(dl_phdr_info* module, std::size_t, void* result) {
    auto* data = static_cast<unsigned char*>(module->dlpi_tls_data);
    const auto anchor = reinterpret_cast<std::uintptr_t>(&shared_memory_anchor);
    for (int i = 0; data && i < module->dlpi_phnum; ++i) {
      const auto& header = module->dlpi_phdr[i];
      const auto start = reinterpret_cast<std::uintptr_t>(data);
      if (header.p_type != PT_TLS || anchor < start || anchor >= start + header.p_memsz) continue;
      *static_cast<StaticSharedMemory*>(result) = {data, header.p_memsz};
      return 1;
    }
    return 0;
  }
};

// An allocation of exactly the launch's size, so that AddressSanitizer sees its ends; without the sanitizer a
// guard behind it is checked after each block.
class DynamicSharedMemory {
 public:
  explicit DynamicSharedMemory(std::size_t bytes) : bytes_(bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, bytes_ + guard_bytes)) throw std::bad_alloc();
    data_ = static_cast<unsigned char*>(memory);
    active = data_;
  }
  ~DynamicSharedMemory() {
    active = nullptr;
    std::free(data_);
  }
  DynamicSharedMemory(const DynamicSharedMemory&) = delete;
  DynamicSharedMemory& operator=(const DynamicSharedMemory&) = delete;

  void poison() {
    std::memset(data_, poison_byte, bytes_);
    std::memset(data_ + bytes_, guard_byte, guard_bytes);
  }

  void check_guard() const {
    for (std::size_t i = bytes_; i < bytes_ + guard_bytes; ++i)
      if (data_[i] != guard_byte)
        throw KernelError(Fault::out_of_bounds, "the kernel wrote behind its " + std::to_string(bytes_) +
                                                    " bytes of dynamic shared memory, block " +
                                                    text(blockIdx));
  }

  static inline unsigned char* active = nullptr;

 private:
  static constexpr std::size_t alignment = 128;
  static constexpr unsigned char guard_byte = 0xA5;
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t guard_bytes = 0;
#else
  static constexpr std::size_t guard_bytes = 256;
#endif

  unsigned char* data_;
  std::size_t bytes_;
};

}  // namespace emulation
