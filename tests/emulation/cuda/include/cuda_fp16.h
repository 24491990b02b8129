// Stands in for the CUDA toolkit's header when a kernel is compiled for the host.
#pragma once

#include "../float16_types.h"
