// The host emulation of the Metal shading language: what a translated kernel is compiled against.
#pragma once

#include "atomics.h"
#include "functions.h"
#include "launch.h"
#include "simdgroup.h"
#include "simdgroup_matrix.h"

// Keywords come last, so that the headers above may use these words.
#define device EMULATION_DEVICE
#define constant const EMULATION_CONSTANT
#define threadgroup EMULATION_THREADGROUP
#define thread
#define kernel
