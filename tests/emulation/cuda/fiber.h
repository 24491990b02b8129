// Cooperative threads: a fiber is a stack of its own that runs until it switches away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#if !defined(__x86_64__)
#error "the context switch of the CUDA emulation is written for x86-64"
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the callee-saved registers of the System V ABI on the current stack, stores the stack pointer
// to *save and continues on the stack `load`, which an earlier call (or Fiber::reset) has left behind.
extern "C" void emulation_switch_stack(void** save, void* load);
asm(R"(
.text
.p2align 4
.type emulation_switch_stack, @function
.hidden emulation_switch_stack
emulation_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulation_switch_stack, . - emulation_switch_stack
)");

namespace emulation {

class Fiber {
 public:
  // Frames may use this much; a canary below it and room below the canary let an overflow be reported.
  static constexpr std::size_t usable_bytes = 128 * 1024;

  Fiber() : stack_(new unsigned char[stack_bytes]) {}

  // Prepares the fiber to run `entry` from its start at the next resume(). `entry` must never return.
  void reset(void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
    // A fiber given up in the middle of a function leaves the shadow of its frames poisoned.
    __asan_unpoison_memory_region(stack_.get(), stack_bytes);
#endif
    *canary() = canary_value;
    auto top = reinterpret_cast<std::uintptr_t>(stack_.get() + stack_bytes) & ~std::uintptr_t{15};
    void** slot = reinterpret_cast<void**>(top);
    *--slot = nullptr;  // return address of `entry`: keeps its frame aligned as after a call
    *--slot = reinterpret_cast<void*>(entry);
    constexpr int saved_registers = 6;
    for (int i = 0; i < saved_registers; ++i) *--slot = nullptr;
    stack_pointer_ = slot;
  }

  // Runs the fiber until it calls suspend(). Called from the scheduler's stack.
  void resume() {
#if defined(__SANITIZE_ADDRESS__)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, stack_.get(), stack_bytes);
    emulation_switch_stack(&scheduler_stack_pointer_, stack_pointer_);
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#else
    emulation_switch_stack(&scheduler_stack_pointer_, stack_pointer_);
#endif
  }

  // Called on the fiber when it starts, before anything else.
  void started() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
  }

  // Goes back to the scheduler; returns when the scheduler resumes this fiber.
  void suspend() {
#if defined(__SANITIZE_ADDRESS__)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, scheduler_stack_, scheduler_stack_bytes_);
    emulation_switch_stack(&stack_pointer_, scheduler_stack_pointer_);
    __sanitizer_finish_switch_fiber(fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
#else
    emulation_switch_stack(&stack_pointer_, scheduler_stack_pointer_);
#endif
  }

  bool overflowed() const { return *canary() != canary_value; }

 private:
  static constexpr std::uint64_t canary_value = 0x5AFE57ACC0FFEE11ull;

  static constexpr std::size_t reserve_bytes = 64 * 1024;
  static constexpr std::size_t stack_bytes = reserve_bytes + usable_bytes;

  std::uint64_t* canary() const { return reinterpret_cast<std::uint64_t*>(stack_.get() + reserve_bytes) - 1; }

  std::unique_ptr<unsigned char[]> stack_;
  void* stack_pointer_ = nullptr;
  void* scheduler_stack_pointer_ = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
#endif
};

}  // namespace emulation
