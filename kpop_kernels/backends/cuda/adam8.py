"""Adam with both moments in 8-bit blocks, in one CUDA pass."""

import torch
from torch import Tensor

from ..._schema.quantize import adam_bound
from .native import FLOATS, Number, dense, dynamic_map, kernels, random_stream


def adam8_(
    param: Tensor,
    grad: Tensor,
    exp_avg_codes: Tensor,
    exp_avg_scales: Tensor,
    exp_avg_zero_points: Tensor,
    exp_avg_sq_codes: Tensor,
    exp_avg_sq_absmax: Tensor,
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: Tensor,
    seed: int,
    stream: int,
    offset: int = 0,
    block_size: int = 256,
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> None:
    """Average both moments, decay and update the parameter; nothing changes if found_inf is not zero."""
    device = param.device
    rate, number = Number(lr, torch.float64, device), Number(step, torch.int64, device)
    found = Number(found_inf, torch.float32, device)
    if found.value:
        return
    grad = grad.contiguous()
    moments = (exp_avg_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_codes, exp_avg_sq_absmax)
    with kernels(device) as cuda, dense(param, *moments) as (W, *blocks):
        cuda.adam8(
            W.data_ptr(),
            FLOATS[W.dtype],
            grad.data_ptr(),
            FLOATS[grad.dtype],
            W.numel(),
            *(tensor.data_ptr() for tensor in blocks),
            block_size=block_size,
            lr=rate.value,
            device_lr=rate.address,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
            limit=adam_bound(beta1, beta2) if clip is None else clip,
            maximize=maximize,
            found_inf=found.address,
            random=random_stream(seed, number, stream, offset),
            step=number.address,
            map=dynamic_map(False, device).data_ptr(),
        )
