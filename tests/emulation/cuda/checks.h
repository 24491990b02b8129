// Misaligned accesses and indices past an array's end: the compiler's own checks, answered here.
//
// The module is compiled with -fsanitize=alignment,bounds, which calls these handlers with the location of
// the offending expression. They take the place of the sanitizer's run-time library.
#pragma once

#include <cstdint>
#include <string>

#include "block.h"

namespace emulation {

// The layouts the compiler emits; the type descriptor is a kind, a width and the name in quotes.
struct SourceLocation {
  const char* file;
  std::uint32_t line;
  std::uint32_t column;
};

struct TypeDescriptor {
  std::uint16_t kind;
  std::uint16_t width;
  char name[1];
};

struct TypeMismatch {
  SourceLocation location;
  const TypeDescriptor* type;
  unsigned char log_alignment;
  unsigned char access;
};

struct OutOfBounds {
  SourceLocation location;
  const TypeDescriptor* array_type;
  const TypeDescriptor* index_type;
};

inline std::string place(const SourceLocation& location) {
  return " (" + file_and_line(location.file, location.line) + ")";
}

}  // namespace emulation

extern "C" __attribute__((used, visibility("hidden"))) void __ubsan_handle_type_mismatch_v1(
    emulation::TypeMismatch* found, std::uintptr_t address) {
  const auto alignment = std::uintptr_t{1} << found->log_alignment;
  emulation::block.fail(emulation::Fault::misaligned_access,
                        std::string("access to ") + found->type->name + " at an address that is " +
                            std::to_string(address % alignment) + " modulo " + std::to_string(alignment) +
                            emulation::place(found->location));
}

extern "C" __attribute__((used, visibility("hidden"))) void __ubsan_handle_out_of_bounds(
    emulation::OutOfBounds* found, std::uintptr_t index) {
  emulation::block.fail(emulation::Fault::out_of_bounds,
                        "index " + std::to_string(static_cast<std::intptr_t>(index)) + " of " +
                            found->array_type->name + emulation::place(found->location));
}
