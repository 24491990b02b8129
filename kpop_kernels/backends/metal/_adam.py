"""The numbers of an Adam step as adam_update.metal has them."""

import math

import torch
from torch import Tensor


def weights(beta1: float, beta2: float, eps: float, limit: float) -> list[float]:
    """Return β₁, 1 - β₁, β₂, 1 - β₂, eps and the limit of |N|."""
    return [float(beta1), 1.0 - beta1, float(beta2), 1.0 - beta2, float(eps), float(limit)]


def update_scalars(
    device: torch.device,
    lr: Tensor,
    found_inf: Tensor | None,
    weight_decay: float,
    *,
    scale: float = 1.0,
    step: Tensor | None = None,
    betas: tuple[float, float] = (0.0, 0.0),
) -> Tensor | list[float]:
    """Return 1 / (1 - β₁ᵗ), 1 / (1 - β₂ᵗ), lr·scale, 1 - lr·weight_decay and found_inf, or 0 for None.

    They are numbers where all of them are on the host; nothing waits for the device. Without Adam there is no
    step, and there are no corrections.
    """
    found_inf = torch.zeros_like(lr) if found_inf is None else found_inf
    step = torch.ones_like(lr) if step is None else step
    on_device = any(tensor.device == device for tensor in (lr, step, found_inf))
    place = device if on_device else torch.device("cpu")
    wide = torch.float32 if place.type == "mps" else torch.float64
    t, rate, found = (tensor.to(device=place, dtype=wide) for tensor in (step, lr, found_inf))
    corrections = [_correction(beta, t) for beta in betas]
    scalars = torch.stack([*corrections, rate * scale, 1 - rate * weight_decay, found])
    narrow = scalars.to(torch.float32)
    return narrow if on_device else narrow.tolist()


def _correction(beta: float, t: Tensor) -> Tensor:
    """Return 1 / (1 - betaᵗ) without cancellation."""
    return -1 / torch.expm1(t * math.log(beta)) if beta else torch.ones_like(t)
