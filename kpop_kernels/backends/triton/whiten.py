"""Whitening: a product for each side, with the update of the weight at the end of the last one."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...tuning import RotationConfig
from .._dense import dense_lists
from .kron_rotate import Factors, multiply_both_sides
from .product_table import Scalars, to_device
from .scalars import scalar_argument
from .step_scalars import DECAY, FOUND_INF, RATE, flags
from .weight_update import Back, rotate_into_weights


def whiten_foreach(
    G: Sequence[Tensor],
    P_L: Sequence[Tensor | None],
    P_R: Sequence[Tensor | None],
    *,
    out: Sequence[Tensor],
    config: RotationConfig | None = None,
) -> None:
    """Write P_L G P_R of every item to out."""
    multiply_both_sides(G, P_L, P_R, out=out, factors=Factors(), config=config)


def whiten_update_foreach_(
    param: Sequence[Tensor],
    G: Sequence[Tensor],
    P_L: Sequence[Tensor | None],
    P_R: Sequence[Tensor | None],
    *,
    lr: Tensor,
    weight_decay: float = 0.0,
    scale: Sequence[float],
    maximize: bool = False,
    found_inf: Sequence[Tensor | None],
    config: RotationConfig | None = None,
) -> None:
    """Update param = (1 - lr·weight_decay)·param - lr·scale·P_L G P_R of every item."""
    signed = [-factor if maximize else factor for factor in scale]
    scalars = _scalars(signed, found_inf, lr, weight_decay, param[0].device)
    with dense_lists(param) as (weights,):
        rows = zip(G, weights, P_L, P_R, scalars, strict=True)
        rotate_into_weights([Back(*row) for row in rows], transposed=False, config=config)


def _scalars(
    scales: Sequence[float],
    found_infs: Sequence[Tensor | None],
    lr: Tensor,
    weight_decay: float,
    device: torch.device,
) -> list[Scalars]:
    """Return the scalars of each item, decay and rate and found_inf at their places."""
    rate = scalar_argument(lr, device)
    if len(scales) == 1 and not isinstance(rate, Tensor):
        found = 0.0 if found_infs[0] is None else scalar_argument(found_infs[0], device)
        return [(0.0, 0.0, 1 - rate * weight_decay, rate * scales[0], found)]
    rows = torch.zeros(len(scales), 5, device=device)
    rows[:, DECAY] = 1 - lr.to(torch.float64) * weight_decay
    rows[:, RATE] = to_device(scales, torch.float64, device) * lr
    rows[:, FOUND_INF] = flags(found_infs, device)
    return list(rows.unbind())
