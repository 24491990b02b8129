"""8-bit blocks on the dynamic map on Apple GPUs."""

import torch
from torch import Tensor

from ...codebooks import dynamic_map
from .._dense import dense
from ._blocks import NAMES, launch_over_blocks
from ._codebook import dynamic_buckets


def quantize_dynamic8(
    x: Tensor, *, block_size: int = 256, signed: bool = False, out: tuple[Tensor, Tensor]
) -> None:
    """Write codes and absmax."""
    with dense(*out) as (codes, absmax):
        launch_over_blocks(
            "dynamic8",
            f"quantize_dynamic8_{NAMES[x.dtype]}",
            (x.contiguous(), codes),
            (absmax,),
            dynamic_buckets(signed, x.device),
            block_size=block_size,
            flags=(signed,),
        )


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
    with dense(out) as (result,):
        launch_over_blocks(
            "dynamic8",
            f"dequantize_dynamic8_{NAMES[dtype]}",
            (codes.contiguous(), result),
            (absmax.contiguous(),),
            dynamic_map(signed, codes.device),
            block_size=block_size,
        )
