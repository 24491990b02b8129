// The element types kernels are compiled for.
#pragma once

namespace kpop {

enum class ElementType : int { float32 = 0, float16 = 1, bfloat16 = 2 };

}  // namespace kpop
