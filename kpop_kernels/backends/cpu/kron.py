"""Rotations and Adam in an eigenbasis: tiles in registers up to a side, BLAS beyond, Adam between the products."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._dense import dense
from .native import kernels, threads

_LONGEST = {"avx512": 1024, "avx2": 256, "baseline": 64}
"""Longest side of a matrix whose products are our own, by instruction set: beyond it BLAS is as fast."""

Batch = tuple[int, int, int, bool, bool]


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
    squares = [[None if P is None else _single(P).square() for P in changes] for changes in (P_L, P_R)]
    moments = [*exp_avg, *exp_avg_sq]
    new = [torch.empty(moment.shape, dtype=torch.float32) for moment in moments]
    two_sided(moments, [*P_L, *squares[0]], [*P_R, *squares[1]], out=new, right_transposed=True)
    for moment, value in zip(moments, new, strict=True):
        moment.copy_(value)


def whiten_foreach(
    G: Sequence[Tensor], P_L: Sequence[Tensor | None], P_R: Sequence[Tensor | None], *, out: Sequence[Tensor]
) -> None:
    """Write P_L G P_R to out."""
    two_sided(G, P_L, P_R, out=out)


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
    for W, G, m, v, L, R, t, found in zip(
        param, grad, exp_avg, exp_avg_sq, Q_L, Q_R, step, found_inf or [None] * len(param), strict=True
    ):
        if not W.numel() or (found is not None and found.item()):
            continue
        corrections = [1 / _bias_correction(beta, t.item()) for beta in (beta1, beta2)]
        if original or not _is_ours(W, L, R):
            _with_blas(W, G, m, v, L, R, corrections, scalars, update, original=original)
            continue
        new = [_single(tensor) for tensor in (W, m, v)]
        inputs = [_single(G), *(None if Q is None else Q.contiguous() for Q in (L, R))]
        tensors = (new[0], inputs[0], *new[1:], *inputs[1:])
        batches.append((*map(_address, tensors), _batch(W, L, R), *corrections))
        read += inputs
        written += zip((W, m, v), new, strict=True)
    if batches:
        kernels().kron_adam(batches, **scalars, **update)
    for tensor, value in written:
        if value is not tensor:
            tensor.copy_(value)


def two_sided(
    G: Sequence[Tensor],
    left: Sequence[Tensor | None],
    right: Sequence[Tensor | None],
    *,
    out: Sequence[Tensor],
    left_transposed: bool = False,
    right_transposed: bool = False,
) -> None:
    """Write every left G right, with factors transposed if that is said; in one call what needs no BLAS."""
    batches: list[Any] = []
    read: list[Tensor | None] = []
    written: list[tuple[Tensor, Tensor]] = []
    for X, L, R, result in zip(G, left, right, out, strict=True):
        if not result.numel() or (L is None and R is None) or not _is_ours(X, L, R):
            result.copy_(_product(X, L, R, left_transposed, right_transposed))
            continue
        operands = [None if t is None else _single(t) for t in (X, L, R)]
        target = result if _is_single(result) else torch.empty(result.shape, dtype=torch.float32)
        batches.append((*map(_address, (*operands, target)), _batch(X, L, R)))
        read += operands
        written.append((result, target))
    if batches:
        transposed = {"left_transposed": left_transposed, "right_transposed": right_transposed}
        kernels().two_sided(batches, **transposed, threads=threads())
    for result, target in written:
        if target is not result:
            result.copy_(target)


def _is_ours(X: Tensor, L: Tensor | None, R: Tensor | None) -> bool:
    """Tell whether a matrix is short enough for our own products; without factors there are none."""
    return (L is None and R is None) or max(X.shape[-2:]) <= _LONGEST[kernels().isa]


def _batch(X: Tensor, L: Tensor | None, R: Tensor | None) -> Batch:
    m, n = X.shape[-2:]
    return X.shape[:-2].numel(), m, n, L is not None and L.ndim > 2, R is not None and R.ndim > 2


def _is_single(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.is_contiguous()


def _single(tensor: Tensor) -> Tensor:
    """Return a tensor in float32 and contiguous: itself if it is."""
    return tensor if _is_single(tensor) else tensor.to(torch.float32).contiguous()


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


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
    rotated = _product(G, Q_L, Q_R, left_transposed=True)
    ours = rotated is not grad and rotated.is_contiguous()
    N = rotated if ours else rotated.clone(memory_format=torch.contiguous_format)
    with dense(exp_avg, exp_avg_sq) as (m, v):
        first = m
        if original:
            m.mul_(scalars["beta1"]).add_(G, alpha=scalars["sign"] * scalars["one_minus_beta1"])
            first = _product(m, Q_L, Q_R, left_transposed=True).contiguous()
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
    _move(param, N, Q_L, Q_R, update["lr"], update["decay"])


def _move(param: Tensor, N: Tensor, Q_L: Tensor | None, Q_R: Tensor | None, lr: float, decay: float) -> None:
    """Decay the parameter and subtract lr·Q_L N Q_Rᵀ; the subtraction rides on the last product if it can."""
    if Q_L is not None:
        N = Q_L @ N
    if Q_R is not None and param.ndim == 2 and param.dtype == torch.float32 and param.is_contiguous():
        torch.addmm(param, N, Q_R.mT, beta=decay, alpha=-lr, out=param)
        return
    if Q_R is not None:
        N = N @ Q_R.mT
    param.copy_(param.to(torch.float32).mul(decay).sub_(N, alpha=lr))


def _product(
    G: Tensor,
    L: Tensor | None,
    R: Tensor | None,
    left_transposed: bool = False,
    right_transposed: bool = False,
) -> Tensor:
    G = G.to(torch.float32)
    if L is not None:
        L = L.to(torch.float32)
        G = (L.mT if left_transposed else L) @ G
    if R is not None:
        R = R.to(torch.float32)
        G = G @ (R.mT if right_transposed else R)
    return G


def _bias_correction(beta: float, step: float) -> float:
    return -math.expm1(step * math.log(beta)) if beta else 1.0
