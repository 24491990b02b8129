"""Adam with both moments in 8-bit blocks: that in an eigenbasis, without rotations."""

from typing import Any

from torch import Tensor

from .kron_adam8 import kron_adam8_


def adam8_(
    param: Tensor,
    grad: Tensor,
    exp_avg_codes: Tensor,
    exp_avg_scales: Tensor,
    exp_avg_zero_points: Tensor,
    exp_avg_sq_codes: Tensor,
    exp_avg_sq_absmax: Tensor,
    **settings: Any,
) -> None:
    """Average both moments, decay and update the parameter; nothing changes where found_inf is not zero."""
    moments = (exp_avg_codes, exp_avg_scales, exp_avg_zero_points, exp_avg_sq_codes, exp_avg_sq_absmax)
    kron_adam8_(param, grad, *moments, None, None, **settings)
