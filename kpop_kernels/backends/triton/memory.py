"""The doors between memory and arithmetic: kernels load and store through them alone.

Arithmetic is in float32. The conversion to bfloat16 is spelled out in integers, so that its bits depend on no
hardware, compiler or interpreter.
"""

import triton
import triton.language as tl


@triton.jit
def load_operand(ptr, mask=None):
    """Load values for ``tl.dot`` in the dtype they are stored in; masked elements are 0."""
    if mask is None:
        values = tl.load(ptr)
    else:
        values = tl.load(ptr, mask=mask, other=0)
    return values


@triton.jit
def load_as_float32(ptr, mask=None):
    """Load values of any dtype, exactly; masked elements are 0."""
    return load_operand(ptr, mask).to(tl.float32)


@triton.jit
def store_rounded(ptr, values, mask=None):
    """Store float32 values, rounded to nearest even, or integers in memory of integers."""
    tl.store(ptr, rounded(values, ptr.dtype.element_ty), mask=mask)


@triton.jit
def store_operand(ptr, values, mask=None):
    """Store values that have the dtype of the memory already."""
    tl.store(ptr, values, mask=mask)


@triton.jit
def rounded(values, dtype: tl.constexpr):
    """Convert float32 values to a dtype; every NaN becomes the same quiet one in bfloat16."""
    if dtype == tl.bfloat16:
        bits = values.to(tl.uint32, bitcast=True)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        nearest = tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC0, nearest)
        return nearest.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    return values.to(dtype)
