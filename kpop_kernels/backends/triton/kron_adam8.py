"""Adam in a rotated basis with both moments in 8-bit blocks: rotate, one pass over the blocks, rotate back."""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..._schema.quantize import adam_bound
from ...codebooks import dynamic_buckets, dynamic_map
from ...tuning import BLOCKWISE_OF_ITEMS, RotationConfig
from .._dense import dense_lists
from .adam_tile import normalized
from .blocks import tile
from .kron_rotate import Factors, multiply_both_sides
from .lists import Item, item_of, launch_on_lists, tensor_of
from .memory import load_as_float32, store_rounded
from .moments import ema_int8, ema_sq_dynamic8
from .philox import UNSPECIALIZED
from .step_scalars import scalar_rows, vector
from .weight_update import Back, rotate_into_weights


def kron_adam8_(
    param: Tensor,
    grad: Tensor,
    *tensors: Any,
    step: Tensor,
    stream: int,
    offset: int = 0,
    found_inf: Tensor | None = None,
    **settings: Any,
) -> None:
    """Rotate, average both moments, rotate back, decay and update; nothing changes where found_inf is not zero."""
    settings |= {"step": [step], "stream": [stream], "offset": [offset], "found_inf": [found_inf]}
    kron_adam8_foreach_([param], [grad], *([tensor] for tensor in tensors), **settings)


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
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: Sequence[Tensor],
    seed: int,
    stream: Sequence[int],
    offset: Sequence[int],
    found_inf: Sequence[Tensor | None],
    block_size: int = 256,
    exp_avg_basis: str = "rotated",
    clip: float | None = None,
    maximize: bool = False,
    config: RotationConfig | None = None,
) -> None:
    """Take the steps of many parameters in as many launches as that of one."""
    device = param[0].device
    steps = vector(step, device)
    scalars = scalar_rows(steps, found_inf, lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay)
    # Rows begin at multiples of 16 bytes, like the scalars.
    state = (list(scalars.unbind()), list(torch.stack((steps, steps), dim=1).unbind()))
    numbers = (beta1, 1 - beta1, beta2, 1 - beta2, eps, adam_bound(beta1, beta2) if clip is None else clip)
    moments = (exp_avg_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_codes, exp_avg_sq_absmax)
    with dense_lists(param, *moments) as (weights, *blocks):
        each = list(zip(*blocks, *state, stream, offset, strict=True))

        def average(g: Sequence[Tensor], out: Sequence[Tensor], part: str) -> None:
            items = [
                Item(x.numel(), (x, y, *tensors), *at)
                for x, y, (*tensors, s, o) in zip(g, out, each, strict=True)
                for at in [(s, o)]
            ]
            _launch(items, numbers, seed, block_size, part, maximize)

        def rotated(tensors: Sequence[Tensor]) -> list[Tensor]:
            out = [torch.empty(W.shape, device=device) for W in weights]
            factors = Factors(left_transposed=True)
            multiply_both_sides(tensors, Q_L, Q_R, out=out, factors=factors, config=config)
            return out

        G = rotated(grad)
        if exp_avg_basis == "original":
            m = [torch.empty_like(X) for X in G]
            average([g.to(torch.float32).contiguous() for g in grad], m, "first")
            N = rotated(m)
            average(G, N, "second")
        else:
            N = G
            average(G, N, "both")
        back = zip(N, weights, Q_L, Q_R, state[0], strict=True)
        rotate_into_weights([Back(*row) for row in back], config=config)


def _launch(
    items: Sequence[Item],
    numbers: tuple[float, ...],
    seed: int,
    block_size: int,
    part: str,
    maximize: bool,
) -> None:
    device = items[0].tensors[0].device
    tables = (dynamic_map(False, device), dynamic_buckets(False, device))
    arguments = (*tables, *numbers, seed & 0xFFFFFFFFFFFFFFFF)
    launch_on_lists(
        direction8_kernel, items, arguments, block_size, BLOCKWISE_OF_ITEMS, PART=part, MAXIMIZE=maximize
    )


# 12 + 18/256 bytes an element: the rotated gradient is read and N written in its place, the codes of both moments
# are read and written.
@triton.jit(do_not_specialize=("items", *UNSPECIALIZED))
def direction8_kernel(
    table_ptr,
    items,
    values_ptr,
    buckets_ptr,
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    eps,
    limit,
    seed: tl.uint64,
    TYPES: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    SHIFTED: tl.constexpr,
    PART: tl.constexpr,
    MAXIMIZE: tl.constexpr,
):
    """Average the moments of BLOCKS blocks and store the normalized first moment.

    PART is "both" or, where the first moment is kept in another basis than the second, "first", which stores the
    average, and then "second", which finds it rotated in its place.
    """
    row, program, n, stream, offset = item_of(table_ptr, items, 9, ALIGNED)
    scalars_ptr = tensor_of(row, 7, TYPES, ALIGNED)
    if load_as_float32(scalars_ptr + 4) != 0:
        return
    first_block, offsets, inside = tile(program, n, BLOCKS, BLOCK_SIZE, COLUMNS)
    first = first_block * BLOCK_SIZE
    g = load_as_float32(tensor_of(row, 0, TYPES, ALIGNED) + first + offsets, inside)
    if MAXIMIZE:
        g = -g
    out_ptr = tensor_of(row, 1, TYPES, ALIGNED) + first + offsets
    if PART == "second":
        m = load_as_float32(out_ptr, inside)
    else:
        m = ema_int8(
            tensor_of(row, 2, TYPES, ALIGNED),
            tensor_of(row, 3, TYPES, ALIGNED),
            tensor_of(row, 4, TYPES, ALIGNED),
            *(g, program, n, beta1, one_minus_beta1),
            *(seed, tensor_of(row, 8, TYPES, ALIGNED), stream, offset),
            *(BLOCKS, BLOCK_SIZE, COLUMNS, SHIFTED),
        )
    if PART != "first":
        v = ema_sq_dynamic8(
            tensor_of(row, 5, TYPES, ALIGNED),
            tensor_of(row, 6, TYPES, ALIGNED),
            *(values_ptr, buckets_ptr, g, program, n),
            *(beta2, one_minus_beta2, BLOCKS, BLOCK_SIZE, COLUMNS),
        )
        correction1, correction2 = load_as_float32(scalars_ptr), load_as_float32(scalars_ptr + 1)
        m = normalized(m * correction1, v * correction2, eps, limit, True)
    store_rounded(out_ptr, m, inside)
