"""Adam in an eigenbasis with both moments in 8-bit blocks: in one call what needs no BLAS."""

from collections.abc import Sequence
from itertools import compress
from operator import not_
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._schema.quantize import adam_bound
from .._dense import dense_lists
from .._items import block_items
from .adam8 import adam8_step
from .ema8 import ema_int8_foreach_, ema_sq_dynamic8_foreach_
from .native import correction, kernels, random_key, threads
from .products import address, batch, is_ours, move, product, single, transposed, write_back


class _Item(NamedTuple):
    param: Tensor
    grad: Tensor
    blocks: tuple[Tensor, ...]
    Q_L: Tensor | None
    Q_R: Tensor | None
    step: Tensor
    stream: int
    offset: int


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
    weight_decay: float,
    step: Sequence[Tensor],
    stream: Sequence[int],
    offset: Sequence[int],
    found_inf: Sequence[Tensor | None] | None = None,
    exp_avg_basis: str = "rotated",
    clip: float | None = None,
    maximize: bool = False,
    block_size: int = 256,
    **settings: Any,
) -> None:
    """Rotate, average both moments, rotate back, decay and update; nothing changes where found_inf is not zero."""
    rate, original = lr.item(), exp_avg_basis == "original"
    decay = 1 - rate * weight_decay
    settings |= {"clip": clip, "maximize": maximize, "block_size": block_size}
    moments = (exp_avg_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_codes, exp_avg_sq_absmax)
    with dense_lists(*moments) as blocks:
        columns = (param, grad, list(zip(*blocks, strict=True)), Q_L, Q_R, step, stream, offset)
        found = found_inf or [None] * len(param)
        items = [
            _Item(*item)
            for item, inf in zip(zip(*columns, strict=True), found, strict=True)
            if item[0].numel() and (inf is None or not inf.item())
        ]
        ours = [is_ours(item.param, item.Q_L, item.Q_R) for item in items]
        _step(list(compress(items, ours)), lr=rate, decay=decay, original=original, **settings)
        for item in compress(items, map(not_, ours)):
            N = (_normalized_original if original else _normalized)(item, **settings)
            move(item.param, N, item.Q_L, transposed(item.Q_R), keep=decay, weight=-rate)


def _step(
    items: Sequence[_Item],
    *,
    lr: float,
    decay: float,
    beta1: float,
    beta2: float,
    seed: int,
    block_size: int,
    original: bool = False,
    **settings: Any,
) -> None:
    """Take the steps of items in one call; without bases, lr = -1 and decay = 0 put N where the parameter was."""
    if not items:
        return
    params = [single(item.param) for item in items]
    factors = [[None if Q is None else Q.contiguous() for Q in (item.Q_L, item.Q_R)] for item in items]
    states = list(zip(*(item.blocks for item in items), strict=True))
    grads = [single(item.grad) for item in items]
    places = [item.stream for item in items], [item.offset for item in items]
    blocks = block_items(x=grads, out=params, affine=states[:3], dynamic=states[3:], places=places)
    batches = []
    for item, block, bases in zip(items, blocks, factors, strict=True):
        t = item.step.item()
        numbers = correction(beta1, t), correction(beta2, t), random_key(seed, item.step)["step"]
        batches.append((block, address(bases[0]), address(bases[1]), batch(item.param, *bases), *numbers))
    scalars = adam8_step(lr=lr, decay=decay, beta1=beta1, beta2=beta2, **settings)
    kernels().kron_adam8(
        batches,
        block_size=block_size,
        scalars=scalars,
        original=original,
        seed=random_key(seed, None)["seed"],
        threads=threads(),
    )
    write_back([(item.param, new) for item, new in zip(items, params, strict=True)])


def _normalized(item: _Item, **settings: Any) -> Tensor:
    """Average both moments of the gradient rotated by BLAS, and return N."""
    rotated = product(transposed(item.Q_L), item.grad, item.Q_R)
    N = torch.empty(rotated.shape, dtype=torch.float32)
    _step([item._replace(param=N, grad=rotated, Q_L=None, Q_R=None)], lr=-1.0, decay=0.0, **settings)
    return N


def _normalized_original(
    item: _Item,
    *,
    beta1: float,
    beta2: float,
    eps: float,
    seed: int,
    block_size: int,
    clip: float | None,
    maximize: bool,
) -> Tensor:
    """Average the gradient as it is and the square of the rotated one, rotate the first moment and return N."""
    G = item.grad.to(torch.float32)
    G = -G if maximize else G
    m, v = (torch.empty(G.shape, dtype=torch.float32) for _ in range(2))
    codes, scales, zero_points, squares, absmax = ([tensor] for tensor in item.blocks)
    ema_int8_foreach_(
        codes,
        scales,
        zero_points,
        [G],
        beta=beta1,
        seed=seed,
        step=[item.step],
        stream=[item.stream],
        offset=[item.offset],
        block_size=block_size,
        out=[m],
    )
    rotated = product(transposed(item.Q_L), G, item.Q_R)
    ema_sq_dynamic8_foreach_(squares, absmax, [rotated], beta=beta2, block_size=block_size, out=[v])
    m = product(transposed(item.Q_L), m, item.Q_R).mul_(correction(beta1, item.step.item()))
    denominator = v.mul_(correction(beta2, item.step.item())).sqrt_().add_(eps)
    limit = adam_bound(beta1, beta2) if clip is None else clip
    return m.div_(denominator).clamp_(-limit, limit)
