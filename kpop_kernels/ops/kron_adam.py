"""Adam in a rotated basis: one matrix or a list, moments in floating point or in 8-bit blocks."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .._schema import scalar
from .._schema.quantize import require_block_size
from ._arguments import each, random_arguments, random_arguments_foreach
from .dynamic8 import QuantizedDynamic8
from .quantize_int8 import QuantizedInt8

MomentBasis = Literal["rotated", "original"]


def kron_adam_(
    param: Tensor,  # (..., m, n)
    grad: Tensor,  # (..., m, n)
    exp_avg: Tensor | QuantizedInt8,  # (..., m, n)
    exp_avg_sq: Tensor | QuantizedDynamic8,  # (..., m, n)
    Q_L: Tensor | None,  # (..., m, m)
    Q_R: Tensor | None,  # (..., n, n)
    *,
    lr: float | Tensor,
    beta1: float = 0.9,
    beta2: float = 0.95,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    step: int | Tensor,
    exp_avg_basis: MomentBasis = "rotated",
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Tensor | None = None,
    seed: int = 0,
    stream: int = 0,
    offset: int = 0,
    block_size: int = 256,
) -> Tensor:  # param
    """Take one Adam step in a rotated basis, in place, and return the parameter.

        G' = Q_Lᵀ G Q_R                      (G = -grad with maximize)
        m ← β₁m + (1-β₁)G'                   v ← β₂v + (1-β₂)G'∘G'
        N = (m / (1-β₁ᵗ)) / (√(v / (1-β₂ᵗ)) + eps),  limited to ±clip
        W ← (1 - lr·weight_decay)·W - lr·Q_L N Q_Rᵀ

    With ``exp_avg_basis="original"`` the first moment stays in the original basis and is rotated each step, at
    the cost of two more products: m ← β₁m + (1-β₁)G, and Q_Lᵀ m Q_R takes the place of m in N. The two agree as
    long as the bases stay; when they change, such an m needs no `rebase_moments_`.

    Moments may be 8-bit blocks, as `quantize_int8` and `quantize_dynamic8` keep them. Then both averages are
    those of `ema_int8_` and `ema_sq_dynamic8_`, whose float32 values the update takes.

    Args:
        param: Parameter W; float32, bfloat16, float16, or with moments in floating point float64. Overwritten.
        grad: Gradient, any floating dtype and strides. Not modified.
        exp_avg: First moment, float32 (float64 for a float64 param) or 8-bit blocks. Overwritten.
        exp_avg_sq: Second moment in the rotated basis, likewise. Overwritten.
        Q_L: Left basis in the moments' dtype, one for the batch or one a matrix; None leaves the side alone.
        Q_R: Right basis, likewise.
        lr: Learning rate; a 0-d tensor on the parameter's device is read there, without a synchronization.
        beta1: Decay of the first moment, 0 ≤ β₁ < 1.
        beta2: Decay of the second moment, 0 ≤ β₂ < 1.
        eps: Added to the denominator; with 0, coordinates that never saw a gradient become NaN.
        weight_decay: Decoupled decay.
        step: Number t of this step, counted from 1; a number or a 0-d tensor (not checked off the CPU).
        exp_avg_basis: Basis of the first moment.
        clip: Limit of |N|. None is no limit or, with 8-bit moments, what N cannot exceed in exact arithmetic,
            see `adam8_`.
        maximize: Ascend instead.
        found_inf: 0-d tensor; when it is not zero, nothing is changed (decided on the device).
        seed: Key of the generator that rounds 8-bit first moments, see `quantize_int8`; not used otherwise.
        stream: Number of the first moment's stream, likewise.
        offset: Index of param's first element in the whole tensor that it is a shard of, likewise.
        block_size: Elements a block, likewise.

    Raises:
        ValueError: Shapes or devices do not fit, a hyper-parameter is out of range, written tensors share
            memory, or a tensor requires grad in grad mode.
        TypeError: A tensor is not floating point, moments and bases are not in the compute dtype, or one moment
            is in blocks and the other is not.

    Numerics:
        With Q_L = Q_R = None it is torch.optim.AdamW (float64: within 1e-12 after 50 steps). A NaN or Inf in
        one matrix of a batch poisons that matrix only. float32, m, n ≤ 257, relative Frobenius errors
        against float64: within 2e-7 for all three from moments of order one; from zero moments or with betas
        of 0, where nothing covers the error of the rotation, within 5e-7 for exp_avg and 1e-6 for exp_avg_sq.
        8-bit moments are bit for bit those of `ema_int8_` and `ema_sq_dynamic8_` given the backend's rotated
        gradient.

    Source:
        The KPOP article; Vyas et al., SOAP (2024). Reference: python_ref/kron.py.
    """
    settings: dict[str, Any] = dict(
        lr=scalar(lr),
        beta1=beta1,
        beta2=beta2,
        eps=eps,
        weight_decay=weight_decay,
        exp_avg_basis=exp_avg_basis,
        clip=clip,
        maximize=maximize,
        found_inf=found_inf,
    )
    if _in_blocks("kron_adam_", exp_avg, exp_avg_sq):
        require_block_size("kron_adam_", block_size)
        random = random_arguments("kron_adam_", seed=seed, step=step, stream=stream, offset=offset)
        blocks = (*exp_avg, *exp_avg_sq)
        torch.ops.kpop.kron_adam8_(
            param, grad, *blocks, Q_L, Q_R, **settings, **random, block_size=block_size
        )
    else:
        torch.ops.kpop.kron_adam_(param, grad, exp_avg, exp_avg_sq, Q_L, Q_R, **settings, step=scalar(step))
    return param


def kron_adam_foreach_(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor] | Sequence[QuantizedInt8],
    exp_avg_sqs: Sequence[Tensor] | Sequence[QuantizedDynamic8],
    Q_Ls: Sequence[Tensor | None],
    Q_Rs: Sequence[Tensor | None],
    *,
    lr: float | Tensor,
    beta1: float = 0.9,
    beta2: float = 0.95,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    step: int | Tensor | Sequence[int | Tensor],
    exp_avg_basis: MomentBasis = "rotated",
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Tensor | Sequence[Tensor | None] | None = None,
    seed: int = 0,
    stream: int | Sequence[int] = 0,
    offset: int | Sequence[int] = 0,
    block_size: int = 256,
) -> None:
    """Take one Adam step in a rotated basis for every parameter of a list as `kron_adam_` does, in one call.

    Args:
        params: Parameters of mixed shapes on one device. Overwritten.
        grads: Gradient of each.
        exp_avgs: First moment of each; all in floating point, or all in blocks. Overwritten.
        exp_avg_sqs: Second moment of each, likewise. Overwritten.
        Q_Ls: Left basis of each, or None.
        Q_Rs: Right basis of each, or None.
        lr: As in `kron_adam_`.
        beta1: As in `kron_adam_`.
        beta2: As in `kron_adam_`.
        eps: As in `kron_adam_`.
        weight_decay: As in `kron_adam_`.
        step: One number for each parameter, or one for all.
        exp_avg_basis: As in `kron_adam_`.
        clip: As in `kron_adam_`.
        maximize: As in `kron_adam_`.
        found_inf: One tensor or None for each parameter, or one for all.
        seed: As in `kron_adam_`.
        stream: One stream a parameter, or the first of consecutive ones.
        offset: One offset a parameter, or one for all.
        block_size: As in `kron_adam_`.

    Raises:
        ValueError: As `kron_adam_`, naming the item, or lists differ in length.
        TypeError: As `kron_adam_`, naming the item.
    """
    op, count = "kron_adam_foreach_", len(params)
    in_blocks = {_in_blocks(op, m, v) for m, v in zip(exp_avgs, exp_avg_sqs, strict=False)}
    if len(in_blocks) > 1:
        raise TypeError(f"{op}: some moments are in 8-bit blocks, either all or none must be")
    if not count:
        return
    settings: dict[str, Any] = dict(
        lr=scalar(lr),
        beta1=beta1,
        beta2=beta2,
        eps=eps,
        weight_decay=weight_decay,
        step=[scalar(t) for t in each(step, count)],
        exp_avg_basis=exp_avg_basis,
        clip=clip,
        maximize=maximize,
        found_inf=each(found_inf, count),
    )
    lists = [list(params), list(grads)], [list(Q_Ls), list(Q_Rs)]
    if True in in_blocks:
        require_block_size(op, block_size)
        random = random_arguments_foreach(op, count, seed=seed, step=1, stream=stream, offset=offset)
        blocks = [list(c) for column in (exp_avgs, exp_avg_sqs) for c in zip(*column, strict=True)]
        settings = random | settings
        torch.ops.kpop.kron_adam8_foreach_(*lists[0], *blocks, *lists[1], **settings, block_size=block_size)
    else:
        torch.ops.kpop.kron_adam_foreach_(*lists[0], list(exp_avgs), list(exp_avg_sqs), *lists[1], **settings)


def _in_blocks(op: str, exp_avg: Any, exp_avg_sq: Any) -> bool:
    """Tell whether both moments are in blocks."""
    in_blocks = [not isinstance(moment, Tensor) for moment in (exp_avg, exp_avg_sq)]
    if in_blocks[0] != in_blocks[1]:
        names = ("exp_avg", "exp_avg_sq") if in_blocks[0] else ("exp_avg_sq", "exp_avg")
        raise TypeError(f"{op}: {names[0]} is in 8-bit blocks and {names[1]} is not, both or neither must be")
    return in_blocks[0]
