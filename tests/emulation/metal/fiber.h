// Cooperative threads: a fiber is a stack of its own that runs until it suspends itself.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

// Saves the callee-saved registers on the current stack, stores the stack pointer to *save and continues
// on the stack `load`, which an earlier call or Fiber::reset has left behind.
extern "C" void emulation_switch_stack(void** save, void* load) __attribute__((visibility("hidden")));

#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.globl emulation_switch_stack
.hidden emulation_switch_stack
.type emulation_switch_stack, @function
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
)");
#elif defined(__aarch64__) && !defined(__APPLE__)
// x19-x30 and d8-d15 are callee-saved; x30 is the address that `ret` continues at.
asm(R"(
.text
.p2align 4
.globl emulation_switch_stack
.hidden emulation_switch_stack
.type emulation_switch_stack, %function
emulation_switch_stack:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");
#else
#error "the context switch of the Metal emulation is written for x86-64 and for aarch64 Linux"
#endif

namespace emulation {

class Fiber {
 public:
  static constexpr std::size_t stack_bytes = 128 * 1024;

  // Prepares the fiber to run `entry` from its start at the next resume(). `entry` must never return.
  void reset(void (*entry)()) {
    if (stack_ == nullptr) stack_ = allocate_stack();
    auto top = reinterpret_cast<std::uintptr_t>(stack_ + stack_bytes) & ~std::uintptr_t{15};
    void** slot = reinterpret_cast<void**>(top);
#if defined(__x86_64__)
    *--slot = nullptr;  // return address of `entry`: its frame is aligned as after a call
    *--slot = reinterpret_cast<void*>(entry);
    constexpr int saved_registers = 6;
    for (int i = 0; i < saved_registers; ++i) *--slot = nullptr;
#else
    constexpr int saved_registers = 20, link_register = 11;
    for (int i = 0; i < saved_registers; ++i) *--slot = nullptr;
    slot[link_register] = reinterpret_cast<void*>(entry);
#endif
    stack_pointer_ = slot;
  }

  // Runs the fiber until it calls suspend(). Called from the scheduler's stack.
  void resume() { emulation_switch_stack(&scheduler_stack_pointer_, stack_pointer_); }

  // Goes back to the scheduler; returns when the scheduler resumes this fiber.
  void suspend() { emulation_switch_stack(&stack_pointer_, scheduler_stack_pointer_); }

 private:
  // Pages are taken when they are touched, so a thousand stacks cost little.
  static unsigned char* allocate_stack() {
    void* stack = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) std::abort();
    return static_cast<unsigned char*>(stack);
  }

  unsigned char* stack_ = nullptr;
  void* stack_pointer_ = nullptr;
  void* scheduler_stack_pointer_ = nullptr;
};

}  // namespace emulation
