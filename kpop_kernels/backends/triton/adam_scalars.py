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
    if not isinstance(t, Tensor) and not isinstance(rate, Tensor):
        corrections = (-1 / math.expm1(t * logarithm) for logarithm in _logarithms(beta1, beta2))
        return *corrections, 1 - rate * weight_decay, rate
    scalars = torch.empty(1, 4, device=device)
    write_adam_scalars(scalars, t, rate, beta1=beta1, beta2=beta2, weight_decay=weight_decay)
    return scalars[0].unbind()


def write_adam_scalars(
    out: Tensor,
    steps: Tensor | float,
    lr: Tensor | float,
    *,
    beta1: float,
    beta2: float,
    weight_decay: float,
) -> None:
    """Write the scalars into the first columns of out, a row for each step; lr is a number or on the device."""
    arguments = (out, out.shape[1], steps, lr, *_logarithms(beta1, beta2), weight_decay)
    launch(adam_scalars_kernel, (out.shape[0],), arguments, _ONE_WARP)


def _logarithms(beta1: float, beta2: float) -> tuple[float, float]:
    first, second = (math.log(beta) if beta else -math.inf for beta in (beta1, beta2))
    return first, second


@triton.jit(do_not_specialize=("width", "step", "lr"))
def adam_scalars_kernel(
    out_ptr,
    width,
    step,
    lr,
    log_beta1: tl.float64,
    log_beta2: tl.float64,
    weight_decay: tl.float64,
):
    """Compute in float64."""
    item = tl.program_id(0)
    out_ptr += item * width
    t = scalar_value(step, item).to(tl.float64)
    rate = scalar_value(lr).to(tl.float64)
    store_rounded(out_ptr, _reciprocal(1.0 - tl.exp(t * log_beta1)))
    store_rounded(out_ptr + 1, _reciprocal(1.0 - tl.exp(t * log_beta2)))
    store_rounded(out_ptr + 2, 1.0 - rate * weight_decay)
    store_rounded(out_ptr + 3, rate)


@triton.jit
def _reciprocal(x):
    """Return 1 / x in float64, for which there is no tl.div_rn."""
    return tl.exp(-tl.log(x))
