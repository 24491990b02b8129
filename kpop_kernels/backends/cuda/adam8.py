"""Adam with both moments in 8-bit blocks, in one CUDA pass."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..._schema.quantize import adam_bound
from .native import (
    FLOATS,
    Number,
    block_items,
    dense,
    dense_lists,
    dynamic_map,
    kernels,
    random_stream,
    sharing,
)


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


def adam8_foreach_(
    param: Sequence[Tensor],
    grad: Sequence[Tensor],
    exp_avg_codes: Sequence[Tensor],
    exp_avg_scales: Sequence[Tensor],
    exp_avg_zero_points: Sequence[Tensor],
    exp_avg_sq_codes: Sequence[Tensor],
    exp_avg_sq_absmax: Sequence[Tensor],
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: Sequence[Tensor],
    seed: int,
    stream: Sequence[int],
    offset: Sequence[int],
    block_size: int = 256,
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Sequence[Tensor | None],
) -> None:
    """Update a list of parameters, in one call for those that share step and found_inf.

    Where found_inf is not zero, nothing changes.
    """
    device = param[0].device
    rate = Number(lr, torch.float64, device)
    grads = [item.contiguous() for item in grad]
    blocks = (exp_avg_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_codes, exp_avg_sq_absmax)
    with kernels(device) as cuda, dense_lists(param, *blocks) as (params, *moments):
        items = block_items(
            x=grads, out=params, affine=moments[:3], dynamic=moments[3:], places=(stream, offset)
        )
        for members in sharing(device, step, found_inf):
            number = Number(step[members[0]], torch.int64, device)
            found = Number(found_inf[members[0]], torch.float32, device)
            if found.value:
                continue
            cuda.adam8_list(
                [items[i] for i in members],
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
                random=random_stream(seed, number),
                step=number.address,
                map=dynamic_map(False, device).data_ptr(),
            )
