"""The scalars of many parameters' steps, for kernels that work on all of them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .adam_scalars import adam_scalars, write_adam_scalars
from .product_table import Scalars, to_device
from .scalars import scalar_argument

CORRECTION1, CORRECTION2, DECAY, RATE, FOUND_INF = range(5)
"""Places of an item's scalars."""


def step_scalars(
    steps: Sequence[Tensor],
    found_infs: Sequence[Tensor | None],
    lr: Tensor,
    *,
    beta1: float,
    beta2: float,
    weight_decay: float,
    device: torch.device,
) -> list[Scalars]:
    """Return 1/(1 - beta1ᵗ), 1/(1 - beta2ᵗ), 1 - lr·weight_decay, lr and found_inf of every item.

    One item has numbers and 0-d tensors, many have rows of one tensor. Nothing waits for the device.
    """
    rest = {"beta1": beta1, "beta2": beta2, "weight_decay": weight_decay}
    if len(steps) == 1:
        (found,) = found_infs
        flag = 0.0 if found is None else scalar_argument(found, device)
        return [(*adam_scalars(steps[0], lr, **rest, device=device), flag)]
    return list(scalar_rows(vector(steps, device), found_infs, lr, **rest).unbind())


def scalar_rows(
    steps: Tensor,
    found_infs: Sequence[Tensor | None],
    lr: Tensor,
    *,
    beta1: float,
    beta2: float,
    weight_decay: float,
) -> Tensor:
    """Return the scalars of every item in rows that begin at multiples of 16 bytes, from a vector of steps."""
    rows = torch.empty(len(steps), 8, device=steps.device)
    rate = scalar_argument(lr, steps.device)
    write_adam_scalars(rows, steps, rate, beta1=beta1, beta2=beta2, weight_decay=weight_decay)
    rows[:, FOUND_INF] = flags(found_infs, steps.device)
    return rows


def spaced(numbers: Tensor) -> tuple[Tensor, ...]:
    """Return numbers in float64, each at a multiple of 16 bytes, as tables of aligned tensors want it."""
    return torch.stack((numbers, numbers), dim=1).unbind()


def flags(found_infs: Sequence[Tensor | None], device: torch.device) -> Tensor | float:
    """Return found_inf of every item on the device, 0 if there is none."""
    if all(found is None for found in found_infs):
        return 0.0
    return vector(found_infs, device)


def vector(numbers: Sequence[Tensor | None], device: torch.device) -> Tensor:
    """Return 0-d tensors as one float64 vector on the device, without waiting for it; None is 0."""
    scalars = [torch.zeros(()) if number is None else number for number in numbers]
    if all(scalar.device.type == "cpu" for scalar in scalars):
        return to_device([scalar.item() for scalar in scalars], torch.float64, device)
    if len({id(scalar) for scalar in scalars}) == 1:
        return scalars[0].to(torch.float64).expand(len(scalars)).contiguous()
    return torch.stack([scalar.to(device, torch.float64, non_blocking=True) for scalar in scalars])
