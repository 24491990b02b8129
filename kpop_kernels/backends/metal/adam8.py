"""Adam with both moments in 8-bit blocks, in one pass on Apple GPUs."""

from torch import Tensor

from ..._schema.quantize import adam_bound
from ...codebooks import dynamic_map
from .._dense import dense
from ._adam import update_scalars, weights
from ._blocks import NAMES, RandomStream, bound_step, launch_over_blocks
from ._codebook import dynamic_buckets


def adam8_(
    param: Tensor,
    grad: Tensor,
    exp_avg_codes: Tensor,
    exp_avg_scales: Tensor,
    exp_avg_zero_points: Tensor,
    exp_avg_sq_codes: Tensor,
    exp_avg_sq_absmax: Tensor,
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: Tensor,
    seed: int,
    stream: int,
    offset: int = 0,
    block_size: int = 256,
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> None:
    """Average both moments, decay and update the parameter; nothing changes where found_inf is not zero."""
    limit = adam_bound(beta1, beta2) if clip is None else clip
    moments = (exp_avg_codes, exp_avg_sq_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_absmax)
    with dense(param, *moments) as (W, m_codes, v_codes, *blocks):
        launch_over_blocks(
            "adam8",
            f"adam8_{NAMES[W.dtype]}_{NAMES[grad.dtype]}",
            (W, grad.contiguous(), m_codes, v_codes),
            blocks,
            weights(beta1, beta2, eps, limit),
            update_scalars(param.device, lr, found_inf, weight_decay, step=step, betas=(beta1, beta2)),
            bound_step(step, param.device),
            dynamic_map(False, param.device),
            dynamic_buckets(False, param.device),
            block_size=block_size,
            random=RandomStream(seed, stream, offset),
            flags=(maximize,),
        )
