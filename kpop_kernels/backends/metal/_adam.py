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
