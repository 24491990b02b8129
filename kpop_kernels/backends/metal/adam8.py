"""Adam with both moments in 8-bit blocks, in one pass on Apple GPUs."""

import math

import torch
from torch import Tensor

from ..._schema.quantize import adam_bound
from ...codebooks import dynamic_map
from .._dense import dense
from ._blocks import NAMES, RandomStream, bound_step, launch_over_blocks
from ._codebook import dynamic_buckets


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
    """Average both moments, decay and update the parameter; nothing changes where found_inf is not zero."""
    limit = adam_bound(beta1, beta2) if clip is None else clip
    moments = (exp_avg_codes, exp_avg_sq_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_absmax)
    with dense(param, *moments) as (W, m_codes, v_codes, *blocks):
        launch_over_blocks(
            "adam8",
            f"adam8_{NAMES[W.dtype]}_{NAMES[grad.dtype]}",
            (W, grad.contiguous(), m_codes, v_codes),
            blocks,
            [float(beta1), 1.0 - beta1, float(beta2), 1.0 - beta2, float(eps), float(limit)],
            update_scalars(param.device, lr, step, found_inf, (beta1, beta2), weight_decay),
            bound_step(step, param.device),
            dynamic_map(False, param.device),
            dynamic_buckets(False, param.device),
            block_size=block_size,
            random=RandomStream(seed, stream, offset),
            flags=(maximize,),
        )


def update_scalars(
    device: torch.device,
    lr: Tensor,
    step: Tensor,
    found_inf: Tensor | None,
    betas: tuple[float, float],
    weight_decay: float,
) -> Tensor | list[float]:
    """Return 1 / (1 - β₁ᵗ), 1 / (1 - β₂ᵗ), lr, 1 - lr·weight_decay and found_inf, or 0 for None.

    They are numbers where all of them are on the host; nothing waits for the device.
    """
    found_inf = torch.zeros_like(step) if found_inf is None else found_inf
    on_device = any(tensor.device == device for tensor in (lr, step, found_inf))
    place = device if on_device else torch.device("cpu")
    wide = torch.float32 if place.type == "mps" else torch.float64
    t, rate, found = (tensor.to(device=place, dtype=wide) for tensor in (step, lr, found_inf))
    scalars = torch.stack([*(_correction(beta, t) for beta in betas), rate, 1 - rate * weight_decay, found])
    narrow = scalars.to(torch.float32)
    return narrow if on_device else narrow.tolist()


def _correction(beta: float, t: Tensor) -> Tensor:
    """Return 1 / (1 - betaᵗ) without cancellation."""
    return -1 / torch.expm1(t * math.log(beta)) if beta else torch.ones_like(t)
