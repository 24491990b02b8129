"""Adam in a rotated basis with 8-bit moments, sides up to 128: one CUDA launch for a list of any shapes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..._schema.quantize import adam_bound
from .kron_rotate import readable, shape_of
from .native import Number, block_items, dense_lists, dynamic_map, kernels


def kron_adam8_foreach_(
    param: Sequence[Tensor],
    grad: Sequence[Tensor],
    exp_avg_codes: Sequence[Tensor],
    exp_avg_scales: Sequence[Tensor],
    exp_avg_zero_points: Sequence[Tensor],
    exp_avg_sq_codes: Sequence[Tensor],
    exp_avg_sq_absmax: Sequence[Tensor],
    Q_L: Sequence[Tensor | None],
    Q_R: Sequence[Tensor | None],
    *,
    lr: Tensor,
    step: Sequence[Tensor],
    seed: int,
    stream: Sequence[int],
    offset: Sequence[int],
    found_inf: Sequence[Tensor | None],
    block_size: int = 256,
    exp_avg_basis: str = "rotated",
    clip: float | None = None,
    maximize: bool = False,
    **settings: Any,
) -> None:
    """Take the steps of many parameters; one of them changes nothing if its found_inf is not zero."""
    device, original = param[0].device, exp_avg_basis == "original"
    rate = Number(lr, torch.float64, device)
    steps = [Number(number, torch.int64, device) for number in step]
    found = [Number(number, torch.float32, device) for number in found_inf]
    grads = [G.contiguous() for G in grad]
    scratch = [torch.empty(G.shape, device=device) if original else None for G in grads]
    left, right = ([readable(Q) for Q in side] for side in (Q_L, Q_R))
    blocks = (exp_avg_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_codes, exp_avg_sq_absmax)
    with kernels(device) as cuda, dense_lists(param, *blocks) as (params, *moments):
        items = block_items(
            x=grads, out=params, affine=moments[:3], dynamic=moments[3:], places=(stream, offset)
        )
        batches = [
            (
                items[i],
                0 if free is None else free.data_ptr(),
                shape_of(W, left[i], right[i]),
                (steps[i].address, int(steps[i].value), found[i].address),
            )
            for i, (W, free) in enumerate(zip(params, scratch, strict=True))
            if W.numel() and not found[i].value
        ]
        cuda.kron_adam8(
            batches,
            block_size=block_size,
            seed=seed & 0xFFFFFFFFFFFFFFFF,
            map=dynamic_map(False, device).data_ptr(),
            lr=rate.value,
            device_lr=rate.address,
            limit=adam_bound(settings["beta1"], settings["beta2"]) if clip is None else clip,
            maximize=maximize,
            original=original,
            **settings,
        )
