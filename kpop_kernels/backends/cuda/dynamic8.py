"""8-bit blocks on the dynamic map in CUDA C++."""

import torch
from torch import Tensor

from .native import FLOATS, dense, dynamic_map, kernels


def quantize_dynamic8(
    x: Tensor, *, block_size: int = 256, signed: bool = False, out: tuple[Tensor, Tensor]
) -> None:
    """Write codes and absmax."""
    x = x.contiguous()
    with kernels(x.device) as cuda, dense(*out) as results:
        cuda.quantize_dynamic8(
            x.data_ptr(),
            FLOATS[x.dtype],
            x.numel(),
            *(result.data_ptr() for result in results),
            block_size=block_size,
            is_signed=signed,
            map=dynamic_map(signed, x.device).data_ptr(),
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
    with kernels(codes.device) as cuda, dense(out) as (result,):
        cuda.dequantize_dynamic8(
            codes.data_ptr(),
            absmax.data_ptr(),
            codes.numel(),
            result.data_ptr(),
            FLOATS[dtype],
            block_size=block_size,
            map=dynamic_map(signed, codes.device).data_ptr(),
        )
