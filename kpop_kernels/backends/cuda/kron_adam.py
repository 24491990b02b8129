"""Adam in a rotated basis, sides with a basis up to 128: one CUDA launch for a list of any shapes."""

from collections.abc import Sequence
from math import inf

import torch
from torch import Tensor

from .kron_rotate import readable, shape_of
from .native import FLOATS, Number, dense, kernels


def kron_adam_foreach_(
    param: Sequence[Tensor],
    grad: Sequence[Tensor],
    exp_avg: Sequence[Tensor],
    exp_avg_sq: Sequence[Tensor],
    Q_L: Sequence[Tensor | None],
    Q_R: Sequence[Tensor | None],
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: Sequence[Tensor],
    exp_avg_basis: str = "rotated",
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Sequence[Tensor | None],
) -> None:
    """Take the steps of many parameters; one of them changes nothing if its found_inf is not zero."""
    device, count = param[0].device, len(param)
    rate = Number(lr, torch.float64, device)
    steps = [Number(number, torch.int64, device) for number in step]
    found = [Number(number, torch.float32, device) for number in found_inf]
    gradients = [(G if G.dtype in FLOATS else G.to(torch.float32)).contiguous() for G in grad]
    left, right = ([readable(Q) for Q in side] for side in (Q_L, Q_R))
    with kernels(device) as cuda, dense(*param, *exp_avg, *exp_avg_sq) as written:
        batches = [
            (
                (W.data_ptr(), FLOATS[W.dtype]),
                (gradients[i].data_ptr(), FLOATS[gradients[i].dtype]),
                written[count + i].data_ptr(),
                written[2 * count + i].data_ptr(),
                shape_of(W, left[i], right[i]),
                (steps[i].address, int(steps[i].value), found[i].address),
            )
            for i, W in enumerate(written[:count])
            if W.numel() and not found[i].value
        ]
        cuda.kron_adam(
            batches,
            lr=rate.value,
            device_lr=rate.address,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
            limit=inf if clip is None else clip,
            maximize=maximize,
            original=exp_avg_basis == "original",
        )
