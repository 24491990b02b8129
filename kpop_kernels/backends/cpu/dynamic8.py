"""8-bit blocks on the dynamic map in C++."""

import torch
from torch import Tensor

from .._dense import dense
from .native import FLOATS, kernels, threads


def quantize_dynamic8(
    x: Tensor, *, block_size: int = 256, signed: bool = False, out: tuple[Tensor, Tensor]
) -> None:
    """Write codes and absmax."""
    x = x.contiguous()
    with dense(*out) as results:
        kernels().quantize_dynamic8(
            x.data_ptr(),
            FLOATS[x.dtype],
            x.numel(),
            *(result.data_ptr() for result in results),
            block_size=block_size,
            is_signed=signed,
            threads=threads(),
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
    codes, absmax = codes.contiguous(), absmax.contiguous()
    with dense(out) as (result,):
        kernels().dequantize_dynamic8(
            codes.data_ptr(),
            absmax.data_ptr(),
            codes.numel(),
            result.data_ptr(),
            FLOATS[dtype],
            block_size=block_size,
            is_signed=signed,
            threads=threads(),
        )
