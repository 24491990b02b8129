"""Rotations and Adam in an eigenbasis: tiles in registers up to a side, BLAS beyond, Adam between the products."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._dense import dense
from .native import correction, kernels, threads
from .products import address, batch, is_ours, move, product, single, transposed, two_sided, write_back


def kron_rotate(
    G: Tensor, Q_L: Tensor | None, Q_R: Tensor | None, *, inverse: bool = False, out: Tensor
) -> None:
    """Write Q_Lᵀ G Q_R, or Q_L G Q_Rᵀ, to out."""
    two_sided([G], [Q_L], [Q_R], out=[out], left_transposed=not inverse, right_transposed=inverse)


def rebase_moments_foreach_(
    exp_avg: Sequence[Tensor],
    exp_avg_sq: Sequence[Tensor],
    P_L: Sequence[Tensor | None],
    P_R: Sequence[Tensor | None],
) -> None:
    """Move the moments into refreshed bases: P_L m P_Rᵀ and (P_L∘P_L) v (P_R∘P_R)ᵀ."""
    squares = [[None if P is None else single(P).square() for P in changes] for changes in (P_L, P_R)]
    moments = [*exp_avg, *exp_avg_sq]
    new = [torch.empty(moment.shape, dtype=torch.float32) for moment in moments]
    two_sided(moments, [*P_L, *squares[0]], [*P_R, *squares[1]], out=new, right_transposed=True)
    for moment, value in zip(moments, new, strict=True):
        moment.copy_(value)


def kron_adam_foreach_(
    param: Sequence[Tensor],
    grad: Sequence[Tensor],
    exp_avg: Sequence[Tensor],
    exp_avg_sq: Sequence[Tensor],
    Q_L: Sequence[Tensor | None],
    Q_R: Sequence[Tensor | None],
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: Sequence[Tensor],
    found_inf: Sequence[Tensor | None] | None = None,
    exp_avg_basis: str = "rotated",
    clip: float | None = None,
    maximize: bool = False,
) -> None:
    """Rotate, Adam in the eigenbases, rotate back, decay and update; in one call what needs no BLAS."""
    scalars: dict[str, Any] = dict(
        beta1=beta1,
        one_minus_beta1=1 - beta1,
        beta2=beta2,
        one_minus_beta2=1 - beta2,
        eps=eps,
        sign=-1.0 if maximize else 1.0,
        threads=threads(),
    )
    rate, original = lr.item(), exp_avg_basis == "original"
    update: dict[str, Any] = {
        "lr": rate,
        "decay": 1 - rate * weight_decay,
        "limit": math.inf if clip is None else clip,
    }
    batches: list[Any] = []
    read: list[Tensor | None] = []
    written: list[tuple[Tensor, Tensor]] = []
    corrected: dict[float, list[float]] = {}
    for W, G, m, v, L, R, t, found in zip(
        param, grad, exp_avg, exp_avg_sq, Q_L, Q_R, step, found_inf or [None] * len(param), strict=True
    ):
        if not W.numel() or (found is not None and found.item()):
            continue
        taken = t.item()
        if taken not in corrected:
            corrected[taken] = [correction(beta, taken) for beta in (beta1, beta2)]
        corrections = corrected[taken]
        if original or not is_ours(W, L, R):
            _with_blas(W, G, m, v, L, R, corrections, scalars, update, original=original)
            continue
        new = [single(tensor) for tensor in (W, m, v)]
        inputs = [single(G), *[None if Q is None else single(Q) for Q in (L, R)]]
        tensors = (new[0], inputs[0], *new[1:], *inputs[1:])
        batches.append((*[address(tensor) for tensor in tensors], batch(W, L, R), *corrections))
        read += inputs
        written += zip((W, m, v), new, strict=True)
    if batches:
        kernels().kron_adam(batches, **scalars, **update)
    write_back(written)


def _with_blas(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    Q_L: Tensor | None,
    Q_R: Tensor | None,
    corrections: list[float],
    scalars: dict[str, Any],
    update: dict[str, float],
    *,
    original: bool,
) -> None:
    """Take the step of one item: products by BLAS, Adam in one pass, the update in the last product."""
    G = grad.to(torch.float32)
    rotated = product(transposed(Q_L), G, Q_R)
    ours = rotated is not grad and rotated.is_contiguous()
    N = rotated if ours else rotated.clone(memory_format=torch.contiguous_format)
    with dense(exp_avg, exp_avg_sq) as (m, v):
        first = m
        if original:
            m.mul_(scalars["beta1"]).add_(G, alpha=scalars["sign"] * scalars["one_minus_beta1"])
            first = product(transposed(Q_L), m, Q_R).contiguous()
            scalars = scalars | {"beta1": 1.0, "one_minus_beta1": 0.0}
        correction1, correction2 = corrections
        kernels().adam(
            N.data_ptr(),
            first.data_ptr(),
            v.data_ptr(),
            N.numel(),
            correction1=correction1,
            correction2=correction2,
            **scalars,
        )
    if update["limit"] != math.inf:
        N.clamp_(-update["limit"], update["limit"])
    move(param, N, Q_L, transposed(Q_R), keep=update["decay"], weight=-update["lr"])
