"""The numbers of an Adam step that follow from step and learning rate."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import BlockwiseConfig
from .launch import launch
from .memory import store_rounded
from .scalars import scalar_argument, scalar_value

_ONE_WARP = BlockwiseConfig(elements=1, num_warps=1)


def adam_scalars(
    step: Tensor,
    lr: Tensor,
    *,
    beta1: float,
    beta2: float,
    weight_decay: float,
    device: torch.device,
) -> tuple[Tensor | float, ...]:
    """Return 1/(1 - beta1ᵗ), 1/(1 - beta2ᵗ), 1 - lr·weight_decay and lr, each rounded to float32 once.

    They are numbers if step and lr are on the CPU and the device is not; else one program computes them there,
    and they are 0-d tensors.
    """
    t, rate = scalar_argument(step, device), scalar_argument(lr, device)
    logarithms = tuple(math.log(beta) if beta else -math.inf for beta in (beta1, beta2))
    if not isinstance(t, Tensor) and not isinstance(rate, Tensor):
        corrections = (-1 / math.expm1(t * logarithm) for logarithm in logarithms)
        return *corrections, 1 - rate * weight_decay, rate
    scalars = torch.empty(4, device=device)
    launch(adam_scalars_kernel, (1,), (scalars, t, rate, *logarithms, weight_decay), _ONE_WARP)
    return scalars.unbind()


@triton.jit(do_not_specialize=("step", "lr"))
def adam_scalars_kernel(
    out_ptr,
    step,
    lr,
    log_beta1: tl.float64,
    log_beta2: tl.float64,
    weight_decay: tl.float64,
):
    """Compute in float64."""
    t = scalar_value(step).to(tl.float64)
    rate = scalar_value(lr).to(tl.float64)
    store_rounded(out_ptr, _reciprocal(1.0 - tl.exp(t * log_beta1)))
    store_rounded(out_ptr + 1, _reciprocal(1.0 - tl.exp(t * log_beta2)))
    store_rounded(out_ptr + 2, 1.0 - rate * weight_decay)
    store_rounded(out_ptr + 3, rate)


@triton.jit
def _reciprocal(x):
    """Return 1 / x in float64, for which there is no tl.div_rn."""
    return tl.exp(-tl.log(x))
