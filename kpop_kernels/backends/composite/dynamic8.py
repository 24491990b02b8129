"""The dynamic map of 8-bit blocks in aten."""

import torch
from torch import Tensor

from ...codebooks import dynamic_map, dynamic_midpoints
from .blocks import SMALLEST_NORMAL, each, flush, from_blocks, to_blocks


def quantize_dynamic8(
    x: Tensor, *, block_size: int = 256, signed: bool = False, out: tuple[Tensor, Tensor]
) -> None:
    """Write codes and absmax."""
    blocks = to_blocks(flush(x.reshape(-1).to(torch.float32)), block_size)
    absmax = blocks.abs().amax(1)
    unusable = ~absmax.isfinite() | (absmax < SMALLEST_NORMAL)
    # Above 2^126 the reciprocal would be subnormal. Powers of two are exact.
    prescale = torch.where(absmax >= 2.0**126, 2.0**-8, 1.0)
    inverse = torch.where(unusable, 0.0, (absmax * prescale).reciprocal())
    y = (blocks * prescale[:, None]) * inverse[:, None]
    codes = torch.bucketize(y, dynamic_midpoints(signed, x.device))
    codes = torch.where(unusable[:, None], 127 if signed else 0, codes)
    absmax = absmax.masked_fill(unusable & absmax.isfinite(), 0.0).masked_fill(
        ~absmax.isfinite(), float("nan")
    )
    out[0].copy_(from_blocks(codes, x))
    out[1].copy_(absmax)


def dequantize_dynamic8(
    codes: Tensor,
    absmax: Tensor,
    *,
    block_size: int = 256,
    signed: bool = False,
    dtype: torch.dtype = torch.float32,
    out: Tensor,
) -> None:
    """Write map[codes]·absmax."""
    values = dynamic_map(signed, codes.device)[codes.to(torch.int64)]
    out.copy_(flush(values * each(absmax, codes, block_size)))
