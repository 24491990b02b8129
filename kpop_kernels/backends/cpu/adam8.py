"""Adam with both moments in 8-bit blocks, in one C++ pass."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..._native import Adam8Step
from ..._schema.quantize import adam_bound
from .._dense import dense_lists
from .._items import block_items
from .._lists import groups
from .native import correction, kernels, random_key, threads


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
    """Average both moments, decay and update the parameters; those whose found_inf is not zero do not change."""
    grads = [item.contiguous() for item in grad]
    blocks = (exp_avg_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_codes, exp_avg_sq_absmax)
    rate = lr.item()
    settings: dict[str, Any] = {
        "beta1": beta1,
        "beta2": beta2,
        "eps": eps,
        "clip": clip,
        "maximize": maximize,
    }
    settings |= {"lr": rate, "decay": 1 - rate * weight_decay}
    moved = [i for i, found in enumerate(found_inf) if found is None or not found.item()]
    numbers = groups([step[i].item() for i in moved])
    with dense_lists(param, *blocks) as (params, *moments):
        items = block_items(
            x=grads, out=params, affine=moments[:3], dynamic=moments[3:], places=(stream, offset)
        )
        for members in numbers.values():
            t = step[moved[members[0]]]
            kernels().adam8(
                [items[moved[i]] for i in members],
                block_size=block_size,
                scalars=adam8_step(**settings, step=t.item()),
                **random_key(seed, t),
                threads=threads(),
            )


def adam8_step(
    *,
    beta1: float,
    beta2: float,
    eps: float,
    clip: float | None,
    maximize: bool,
    lr: float,
    decay: float,
    step: float = 1.0,
) -> Adam8Step:
    """Return the scalars of a step as the kernels take them; W becomes decay·W - lr·N."""
    return Adam8Step(
        beta1=beta1,
        one_minus_beta1=1 - beta1,
        beta2=beta2,
        one_minus_beta2=1 - beta2,
        correction1=correction(beta1, step),
        correction2=correction(beta2, step),
        eps=eps,
        sign=-1.0 if maximize else 1.0,
        lr=lr,
        decay=decay,
        limit=adam_bound(beta1, beta2) if clip is None else clip,
    )
