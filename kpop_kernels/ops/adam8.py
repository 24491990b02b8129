"""Adam with both moments in 8-bit blocks, in one pass over memory."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .._schema import scalar
from .._schema.quantize import require_block_size
from ._arguments import each, random_arguments, random_arguments_foreach


def adam8_(
    param: Tensor,
    grad: Tensor,
    exp_avg_codes: Tensor,
    exp_avg_scales: Tensor,
    exp_avg_zero_points: Tensor,
    exp_avg_sq_codes: Tensor,
    exp_avg_sq_absmax: Tensor,
    *,
    lr: float | Tensor,
    beta1: float = 0.9,
    beta2: float = 0.95,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    step: int | Tensor,
    seed: int,
    stream: int,
    offset: int = 0,
    block_size: int = 256,
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> Tensor:  # param
    """Take one step of Adam whose moments live in 8-bit blocks, in place, and return the parameter.

        m = ema_int8_(exp_avg, grad, β₁)      v = ema_sq_dynamic8_(exp_avg_sq, grad, β₂)
        N = (m / (1-β₁ᵗ)) / (√(v / (1-β₂ᵗ)) + eps),  limited to ±clip
        W ← (1 - lr·weight_decay)·W - lr·N

    The update takes the float32 moments; the blocks keep them for the next step. A second moment that is
    small beside its block's largest is kept as 0 while stochastic rounding may keep its first moment as a
    whole step: without the limit such an element would fly away.

    Args:
        param: Parameter W; float32, bfloat16 or float16. Overwritten, rounded to nearest.
        grad: Gradient of param's shape; float32, bfloat16 or float16, any strides. Not modified.
        exp_avg_codes: First moment, as `quantize_int8` keeps it; zeros to begin with. Overwritten.
        exp_avg_scales: Its scales. Overwritten.
        exp_avg_zero_points: Its zero points. Overwritten.
        exp_avg_sq_codes: Second moment, as `quantize_dynamic8` keeps it; zeros to begin with. Overwritten.
        exp_avg_sq_absmax: Its absolute maxima. Overwritten.
        lr: Learning rate; a 0-d tensor is read on its device.
        beta1: Decay of the first moment, 0 ≤ β₁ < 1.
        beta2: Decay of the second moment, 0 ≤ β₂ < 1.
        eps: Added to the denominator.
        weight_decay: Decoupled decay.
        step: Number t of this step, counted from 1; also counts the random numbers.
        seed: 64-bit key of the generator.
        stream: Number of the first moment's stream.
        offset: Index of param's first element in the whole tensor that it is a shard of.
        block_size: Elements a block: a multiple of 8 from 8 to 4096.
        clip: Limit of |N|. None is what N cannot exceed in exact arithmetic,
            (1-β₁) / √((1-β₂)(1-β₁²/β₂)): 1 for equal betas, 7.27 for (0.9, 0.999), no limit when β₁² ≥ β₂.
        maximize: Ascend instead.
        found_inf: 0-d tensor; when it is not zero, nothing is changed (decided on the device).

    Raises:
        ValueError: Shapes or devices do not fit, an argument is out of its range, written tensors share
            memory, or a tensor requires grad in grad mode.
        TypeError: A tensor has another dtype.

    Numerics:
        The moments are bit-identical on all backends, as those of `ema_int8_` and `ema_sq_dynamic8_`. A zero
        gradient from the first step on leaves the parameter unchanged, bit for bit.

    Source:
        The Clean paper; Kingma & Ba, Adam (2014). Reference: python_ref/quantize.py.
    """
    require_block_size("adam8_", block_size)
    random = random_arguments("adam8_", seed=seed, step=step, stream=stream, offset=offset)
    torch.ops.kpop.adam8_(
        param,
        grad,
        exp_avg_codes,
        exp_avg_scales,
        exp_avg_zero_points,
        exp_avg_sq_codes,
        exp_avg_sq_absmax,
        lr=scalar(lr),
        beta1=beta1,
        beta2=beta2,
        eps=eps,
        weight_decay=weight_decay,
        block_size=block_size,
        clip=clip,
        maximize=maximize,
        found_inf=found_inf,
        **random,
    )
    return param


def adam8_foreach_(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avg_codes: Sequence[Tensor],
    exp_avg_scales: Sequence[Tensor],
    exp_avg_zero_points: Sequence[Tensor],
    exp_avg_sq_codes: Sequence[Tensor],
    exp_avg_sq_absmax: Sequence[Tensor],
    *,
    lr: float | Tensor,
    beta1: float = 0.9,
    beta2: float = 0.95,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    step: int | Tensor | Sequence[int | Tensor],
    seed: int,
    stream: int | Sequence[int],
    offset: int | Sequence[int] = 0,
    block_size: int = 256,
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Tensor | Sequence[Tensor | None] | None = None,
) -> None:
    """Take one step of Adam for every parameter of a list as `adam8_` does, in one call.

    Args:
        params: Parameters on one device. Overwritten.
        grads: Gradient of each.
        exp_avg_codes: First moment of each. Overwritten.
        exp_avg_scales: Its scales. Overwritten.
        exp_avg_zero_points: Its zero points. Overwritten.
        exp_avg_sq_codes: Second moment of each. Overwritten.
        exp_avg_sq_absmax: Its absolute maxima. Overwritten.
        lr: As in `adam8_`.
        beta1: As in `adam8_`.
        beta2: As in `adam8_`.
        eps: As in `adam8_`.
        weight_decay: As in `adam8_`.
        step: One number a parameter, or one for all.
        seed: As in `adam8_`.
        stream: One stream a parameter, or the first of consecutive ones.
        offset: One offset a parameter, or one for all.
        block_size: As in `adam8_`.
        clip: As in `adam8_`.
        maximize: As in `adam8_`.
        found_inf: One tensor or None a parameter, or one for all.

    Raises:
        ValueError: As `adam8_`, naming the item, or lists differ in length.
        TypeError: As `adam8_`, naming the item.
    """
    op = "adam8_foreach_"
    require_block_size(op, block_size)
    random = random_arguments_foreach(op, len(params), seed=seed, step=step, stream=stream, offset=offset)
    if not params:
        return
    torch.ops.kpop.adam8_foreach_(
        list(params),
        list(grads),
        list(exp_avg_codes),
        list(exp_avg_scales),
        list(exp_avg_zero_points),
        list(exp_avg_sq_codes),
        list(exp_avg_sq_absmax),
        lr=scalar(lr),
        beta1=beta1,
        beta2=beta2,
        eps=eps,
        weight_decay=weight_decay,
        block_size=block_size,
        clip=clip,
        maximize=maximize,
        found_inf=each(found_inf, len(params)),
        **random,
    )
