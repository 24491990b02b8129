"""Stochastic rounding of float32 to bfloat16, in integer arithmetic on the bits."""

import torch
from torch import Tensor

from .philox import random16

LARGEST_BF16 = 0x7F7F0000
INFINITY = 0x7F800000
QUIET = 0x0040


def stochastic_round_bf16(
    x: Tensor, *, seed: int, step: Tensor, stream: int, offset: int = 0, out: Tensor
) -> None:
    """Add 16 random bits below the bits that stay, and cut; beyond the largest bfloat16 cut only."""
    bits = x.contiguous().view(torch.int32).reshape(-1).to(torch.int64) & 0xFFFFFFFF
    random = random16(x.numel(), x.device, seed=seed, step=step, stream=stream, offset=offset)
    magnitude = bits & 0x7FFFFFFF
    rounded = (bits + torch.where(magnitude > LARGEST_BF16, 0, random)) >> 16
    rounded = torch.where(magnitude > INFINITY, rounded | QUIET, rounded)
    signed = torch.where(rounded >= 0x8000, rounded - 0x10000, rounded)
    out.copy_(signed.to(torch.int16).view(torch.bfloat16).reshape(x.shape))
