"""Passes over the elements of many tensors in one launch, where there is nothing to multiply."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .memory import load_operand
from .product_table import WIDTH, Product, Scalars, find_row, tensor_in_table


def flat_product(first: Tensor, *elements: Tensor, scalars: Scalars) -> Product:
    """Return a pass over tensors of one shape as a product that has only its end: n elements, all else is 1."""
    first = first.to(torch.float32) if first.dtype == torch.float64 else first
    flat = [tensor.reshape(-1) for tensor in (first, *elements)]
    return Product(flat[0], flat[0], (1, 1, first.numel(), 1), tuple(flat[1:]), scalars)


@triton.jit
def element_program(ptr, n, table_ptr, count, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):
    """Return the address of a program's first element, its number, offsets from there, which of them exist.

    Last comes the row of the table, if there is one.
    """
    tile, row_ptr = tl.program_id(0).to(tl.int64), ptr
    if table_ptr is not None:
        row_ptr = find_row(table_ptr, WIDTH, count, tile)
        tile -= load_operand(row_ptr)
        n = load_operand(row_ptr + 2)
        if ALIGNED:
            n = tl.multiple_of(n, 16)
        ptr = tensor_in_table(row_ptr, 6, ptr, ALIGNED)
    first = tile * BLOCK
    offsets = tl.arange(0, BLOCK)
    return ptr + first, first, offsets, offsets < n - first, row_ptr
