"""Adam in a rotated basis on Apple GPUs: Adam ends the second product, the weight update the last one."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .._dense import dense
from . import _shader
from ._adam import update_scalars, weights
from ._blocks import NAMES
from ._products import launch_tiles, tiles_of
from .kron_rotate import last_product, multiply

_THREADS = 256
_ELEMENTS_A_GROUP = 4 * _THREADS

# Grid positions have 32 bits, and a dispatch that takes long is stopped while a display is attached.
_ELEMENTS_PER_LAUNCH = 2**28


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
        update_scalars(param.device, lr, step, found_inf, (beta1, beta2), weight_decay),
    )
    G = grad if grad.dtype in NAMES else grad.to(torch.float32)
    with dense(param, exp_avg, exp_avg_sq) as (W, m, v):
        if Q_L is None and Q_R is None:
            name = f"adam_pass_{NAMES[W.dtype]}_{NAMES[G.dtype]}"
            _launch_pass(name, [W, G.contiguous(), m, v], maximize, numbers)
            return
        N = torch.empty(m.shape, dtype=torch.float32, device=m.device)
        original = exp_avg_basis == "original"
        if original:
            G = G.contiguous()
            _launch_pass(f"average_{NAMES[G.dtype]}", [G, m], maximize, numbers)
            multiply(*last_product(m, Q_L, Q_R), N)
        left, right = last_product(G, Q_L, Q_R)
        name = f"adam_product_{left.type}_{right.type}"
        flags = (maximize, original)
        launch_tiles("kron_adam", name, tiles_of(N), left, right, [m, v, N], *numbers, flags=flags)
        left, right = last_product(N, Q_L, Q_R, inverse=True)
        launch_tiles("kron_adam", f"update_product_{NAMES[W.dtype]}", tiles_of(N), left, right, [W], *numbers)


def _launch_pass(
    kernel_name: str, tensors: Sequence[Tensor], maximize: bool, numbers: Sequence[Tensor | list[float]]
) -> None:
    """Launch a kernel on all elements of contiguous tensors of one size, in pieces if there are very many."""
    numel = tensors[0].numel()
    for first in range(0, numel, _ELEMENTS_PER_LAUNCH):
        count = min(numel - first, _ELEMENTS_PER_LAUNCH)
        _shader.kernel("kron_adam", kernel_name)(
            *(tensor.view(-1)[first : first + count] for tensor in tensors),
            [count, int(maximize)],
            *numbers,
            threads=-(-count // _ELEMENTS_A_GROUP) * _THREADS,
            group_size=_THREADS,
        )
