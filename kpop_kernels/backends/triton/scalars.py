"""0-d tensors as kernel arguments: read on the device where they are there, given by value where they are not."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .memory import load_operand


def scalar_argument(value: Tensor, device: torch.device) -> Tensor | int | float:
    """Return a 0-d tensor on the device as it is, for the kernel to read, and one on the CPU as a number."""
    return value if value.device == device else value.item()


@triton.jit
def scalar_value(argument, place=0):
    """Return the number that `scalar_argument` passed, or the place-th of a vector on the device."""
    argument = tl.to_tensor(argument)
    if argument.dtype.is_ptr():
        value = load_operand(argument + place)
    else:
        value = argument
    return value
