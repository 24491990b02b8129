"""Adam in a rotated basis on Apple GPUs: Adam ends the second product, the weight update the last one."""

import math

import torch
from torch import Tensor

from .._dense import dense
from ._adam import update_scalars, weights
from ._blocks import NAMES
from ._passes import launch_pass
from ._products import launch_tiles, tiles_of
from .kron_rotate import last_product, multiply
from .weight_update import update_by_product


def kron_adam_(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    Q_L: Tensor | None,
    Q_R: Tensor | None,
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: Tensor,
    exp_avg_basis: str = "rotated",
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> None:
    """Rotate the gradient, Adam in the basis, rotate back, decay and update the parameter."""
    if not param.numel():
        return
    numbers = (
        weights(beta1, beta2, eps, math.inf if clip is None else clip),
        update_scalars(param.device, lr, found_inf, weight_decay, step=step, betas=(beta1, beta2)),
    )
    G = grad if grad.dtype in NAMES else grad.to(torch.float32)
    with dense(param, exp_avg, exp_avg_sq) as (W, m, v):
        if Q_L is None and Q_R is None:
            name = f"adam_pass_{NAMES[W.dtype]}_{NAMES[G.dtype]}"
            launch_pass("kron_adam", name, [W, G.contiguous(), m, v], *numbers, flags=(maximize,))
            return
        N = torch.empty(m.shape, dtype=torch.float32, device=m.device)
        original = exp_avg_basis == "original"
        if original:
            G = G.contiguous()
            launch_pass("kron_adam", f"average_{NAMES[G.dtype]}", [G, m], *numbers, flags=(maximize,))
            multiply(*last_product(m, Q_L, Q_R), N)
        left, right = last_product(G, Q_L, Q_R)
        name = f"adam_product_{left.type}_{right.type}"
        flags = (maximize, original)
        launch_tiles("kron_adam", name, tiles_of(N), left, right, [m, v, N], *numbers, flags=flags)
        update_by_product(W, *last_product(N, Q_L, Q_R, inverse=True), numbers[1])
