// What csrc/cuda/ptx.cuh includes in place of inline PTX.
#pragma once

#include "../arithmetic.h"
#include "../mma.h"
