"""Kernels that exist to test parts of kernels and the interpreter's guards."""

import triton
import triton.language as tl

from kpop_kernels.backends.triton.memory import load_as_float32, load_operand, store_rounded
from kpop_kernels.backends.triton.multiply import upper_tile
from kpop_kernels.backends.triton.philox import philox_words


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Convert x to y's dtype."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = load_as_float32(x_ptr + offsets, offsets < n)
    store_rounded(y_ptr + offsets, x, offsets < n)


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    """Multiply two matrices of N rows and columns."""
    i = tl.arange(0, N)
    offsets = i[:, None] * N + i[None, :]
    c = tl.dot(load_operand(a_ptr + offsets), load_operand(b_ptr + offsets), input_precision="ieee")
    store_rounded(c_ptr + offsets, c)


@triton.jit
def philox_kernel(words_ptr, calls_ptr, seed: tl.uint64, step, stream: tl.uint32):
    """Store the four output words of one call."""
    w0, w1, w2, w3 = philox_words(load_operand(calls_ptr), seed, step.to(tl.uint32), stream)
    store_rounded(words_ptr, w0)
    store_rounded(words_ptr + 1, w1)
    store_rounded(words_ptr + 2, w2)
    store_rounded(words_ptr + 3, w3)


@triton.jit
def upper_tile_kernel(t_ptr, i_ptr, j_ptr, BLOCK: tl.constexpr):
    """Store row and column of each tile."""
    offsets = tl.arange(0, BLOCK)
    i, j = upper_tile(load_operand(t_ptr + offsets))
    store_rounded(i_ptr + offsets, i)
    store_rounded(j_ptr + offsets, j)
