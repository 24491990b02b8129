"""The two ways a matrix moves: Adam, in a rotated basis or the plain one, and a given direction."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._schema import compute_dtype
from ..ops import kron_adam_foreach_
from ._buckets import Work
from ._factors import SIDES
from ._nonfinite import on_host, undone_if
from ._routing import Rule


def new_adam_state(parameter: Tensor, rule: Rule) -> dict[str, Any]:
    """Return Adam's moments before the first step."""
    zeros = parameter.new_zeros(rule.shape, dtype=compute_dtype(parameter))
    return {"exp_avg": zeros, "exp_avg_sq": zeros.clone()}


def new_rotated_state(parameter: Tensor, rule: Rule, *, identity_factors: bool = False) -> dict[str, Any]:
    """Return moments, zero (or identity) factors "L", "R" and identity bases "Q_L", "Q_R" of the rule's sides."""
    state = new_adam_state(parameter, rule)
    for (side, factor, basis), n in zip(SIDES, rule.shape[-2:], strict=True):
        if getattr(rule, side):
            eye = torch.eye(n, dtype=state["exp_avg"].dtype, device=parameter.device)
            state[basis] = eye.repeat(*rule.shape[:-2], 1, 1)
            state[factor] = state[basis].clone() if identity_factors else torch.zeros_like(state[basis])
    return state


def adam_steps_(
    work: Sequence[Work], matrices: Sequence[Tensor], gradients: Sequence[Tensor], *, decay: float
) -> None:
    """Take a step of Adam in the bases that the states hold, or in the plain one, in one call.

    Args:
        work: Parameters of one group, whose states hold "step", "exp_avg", "exp_avg_sq" and, for a rotated side,
            "Q_L", "Q_R". States are overwritten.
        matrices: The parameters, (..., m, n). Overwritten.
        gradients: Their gradients.
        decay: Decoupled weight decay, in units of lr.
    """
    group, states = work[0].group, [item.state for item in work]
    kron_adam_foreach_(
        matrices,
        gradients,
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [state.get("Q_L") for state in states],
        [state.get("Q_R") for state in states],
        lr=group["lr"],
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        eps=group["eps"],
        weight_decay=decay,
        step=[state["step"] for state in states],
        maximize=group["maximize"],
        found_inf=[item.found_inf for item in work],
    )


def gradient_like(item: Work, key: str) -> Tensor:
    """Return a gradient in the shape and dtype of an entry of its state, contiguous; negated to maximize."""
    like = item.state[key]
    G = item.grad.reshape(like.shape).to(like.dtype).contiguous()
    return -G if item.group["maximize"] else G


def learning_rate(group: dict[str, Any]) -> float | Tensor:
    """Return a group's learning rate: a number, or a tensor where reading it would wait for a device."""
    lr = group["lr"]
    return float(lr) if not isinstance(lr, Tensor) or on_host(lr.device) else lr


def bias_correction(beta: float, step: Tensor) -> float | Tensor:
    """Return 1 - βᵗ: a number, or a 0-d tensor where reading t would wait for a device."""
    if on_host(step.device):
        return 1 - beta ** step.item()
    t = step if step.device.type == "mps" else step.double()
    return -torch.expm1(t * math.log(beta)) if beta else torch.ones_like(t)


def descend_(
    matrix: Tensor,
    direction: Tensor,
    *,
    lr: float | Tensor,
    decay: float,
    scale: float = 1.0,
    found_inf: Tensor | None,
) -> None:
    """W ← (1 - lr·decay) W - lr·scale·U, computed in the direction's dtype and rounded once.

    Args:
        matrix: The parameter W. Overwritten.
        direction: U.
        lr: Learning rate.
        decay: Decoupled weight decay, in units of lr.
        scale: Factor of the direction alone.
        found_inf: If it is not None and not zero, nothing is changed.
    """
    with undone_if(found_inf, matrix) as (target,):
        moved = target.to(direction.dtype) * (1 - lr * decay)
        if isinstance(lr, Tensor):
            target.copy_(moved.addcmul_(direction, lr, value=-scale))
        else:
            target.copy_(moved.sub_(direction, alpha=lr * scale))
