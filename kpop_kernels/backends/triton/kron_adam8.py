"""Adam in a rotated basis with both moments in 8-bit blocks: rotate, average, rotate back."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..._schema.quantize import adam_bound
from ...codebooks import dynamic_buckets, dynamic_map
from ...tuning import BLOCKWISE_OF_ITEMS, RotationConfig
from .._dense import dense_lists
from .adam8_product import adam8_of_products, ends_in_adam8
from .adam_tile import normalized
from .blocks import tile
from .kron_rotate import Factors, left_product, multiply, multiply_both_sides, right_product
from .lists import Item, item_of, launch_on_lists, tensor_of
from .memory import load_as_float32, store_rounded
from .moments import ema_int8, ema_sq_dynamic8
from .philox import UNSPECIALIZED, unsigned
from .step_scalars import scalar_rows, spaced, vector
from .weight_update import Back, rotate_into_weights


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
    """Take the steps of many parameters in as many launches as that of one.

    Where blocks are rows of a product's tiles, averages are the end of the last rotation; elsewhere, and where the
    first moment is kept in the original basis, they are passes of their own.
    """
    steps = vector(step, param[0].device)
    scalars = scalar_rows(steps, found_inf, lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay)
    limit = adam_bound(beta1, beta2) if clip is None else clip
    settings = _Settings((beta1, 1 - beta1, beta2, 1 - beta2, eps, limit), seed, block_size, maximize, config)
    original = exp_avg_basis == "original"
    moments = (exp_avg_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_codes, exp_avg_sq_absmax)
    with dense_lists(param, *moments) as (weights, *blocks):
        columns = (zip(*blocks, strict=True), scalars.unbind(), spaced(steps), stream, offset)
        items = [_Item(*row) for row in zip(weights, grad, Q_L, Q_R, *columns, strict=True)]
        at_the_end = [not original and item.ends_in_adam8(block_size) for item in items]
        together = [item for item, at_end in zip(items, at_the_end, strict=True) if at_end]
        apart = [item for item, at_end in zip(items, at_the_end, strict=True) if not at_end]
        N = [
            *_rotate_into_adam8(together, settings),
            *_rotate_and_average(apart, settings, original=original),
        ]
        back = zip(N, [*together, *apart], strict=True)
        rotate_into_weights([Back(x, i.param, i.Q_L, i.Q_R, i.scalars) for x, i in back], config=config)


class _Settings(NamedTuple):
    """What all parameters of a step share; ``numbers`` are what kernels take, in their order."""

    numbers: tuple[float, ...]
    seed: int
    block_size: int
    maximize: bool
    config: RotationConfig | None


class _Item(NamedTuple):
    """A parameter with what its step reads and writes, all contiguous but the gradient.

    Attributes:
        param, grad, Q_L, Q_R, stream, offset: As in the operator.
        blocks: Codes, scales and zero points of the first moment, codes and absmax of the second.
        scalars: Those of `step_scalars`.
        step: Number of the step in float64.
    """

    param: Tensor
    grad: Tensor
    Q_L: Tensor | None
    Q_R: Tensor | None
    blocks: tuple[Tensor, ...]
    scalars: Tensor
    step: Tensor
    stream: int
    offset: int

    def ends_in_adam8(self, block_size: int) -> bool:
        """Tell whether the averages may be the end of a product."""
        rotated = self.Q_L is not None or self.Q_R is not None
        return rotated and ends_in_adam8(self.param.shape, block_size, self.offset)


def _rotate_into_adam8(items: Sequence[_Item], settings: _Settings) -> list[Tensor]:
    """Average moments at the end of the last rotation, and return the normalized first moments."""
    N = [torch.empty(item.param.shape, device=item.param.device) for item in items]
    first, lefts, rights = [], [], []
    for i, out in zip(items, N, strict=True):
        m_codes, scales, zero_points, v_codes, absmax = i.blocks
        ends, X = (m_codes, v_codes, out), i.grad
        extra = (scales, zero_points, absmax, i.step, i.stream, i.offset)
        if i.Q_L is not None and i.Q_R is not None:
            X = torch.empty_like(out)
            first.append(left_product(i.Q_L, i.grad, X))
        if i.Q_R is not None:
            rights.append(right_product(X, i.Q_R, *ends, scalars=i.scalars, extra=extra))
        elif i.Q_L is not None:
            lefts.append(left_product(i.Q_L, X, *ends, scalars=i.scalars, extra=extra))
    multiply(first, a_transposed=True, config=settings.config)
    numbers, seed, _, maximize, _ = settings
    adam8_of_products(lefts, numbers, seed, a_transposed=True, maximize=maximize)
    adam8_of_products(rights, numbers, seed, a_transposed=False, maximize=maximize)
    return N


def _rotate_and_average(items: Sequence[_Item], settings: _Settings, *, original: bool) -> list[Tensor]:
    """Average moments in passes, and return the normalized first moments in the basis."""
    if not items:
        return []
    G = _rotated(items, [item.grad for item in items], settings)
    if not original:
        _launch(items, G, G, settings, "both")
        return G
    m = [torch.empty_like(X) for X in G]
    _launch(items, [item.grad.to(torch.float32).contiguous() for item in items], m, settings, "first")
    N = _rotated(items, m, settings)
    _launch(items, G, N, settings, "second")
    return N


def _rotated(items: Sequence[_Item], tensors: Sequence[Tensor], settings: _Settings) -> list[Tensor]:
    out = [torch.empty(X.shape, device=X.device) for X in tensors]
    lefts, rights = [item.Q_L for item in items], [item.Q_R for item in items]
    factors = Factors(left_transposed=True)
    multiply_both_sides(tensors, lefts, rights, out=out, factors=factors, config=settings.config)
    return out


def _launch(
    items: Sequence[_Item], g: Sequence[Tensor], out: Sequence[Tensor], settings: _Settings, part: str
) -> None:
    """Average moments with g, or the part of it; see `direction8_kernel`."""
    blocks = [
        Item(x.numel(), (x, y, *i.blocks, i.scalars, i.step), i.stream, i.offset)
        for x, y, i in zip(g, out, items, strict=True)
    ]
    device = out[0].device
    tables = (dynamic_map(False, device), dynamic_buckets(False, device))
    arguments = (*tables, *settings.numbers, unsigned(settings.seed))
    launch_on_lists(
        direction8_kernel,
        *(blocks, arguments, settings.block_size, BLOCKWISE_OF_ITEMS),
        PART=part,
        MAXIMIZE=settings.maximize,
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
