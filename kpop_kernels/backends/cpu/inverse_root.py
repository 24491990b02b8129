"""Inverse roots: small matrices iterated in the cache by one kernel call, large ones by their eigenvalues."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ... import coefficients
from ...tuning import ANY_STEPS, most_steps
from .._spectrum import TINY, Normalized, eigh_factor, tiny_eigh_root
from .native import kernels, threads
from .symmetric import syrk


def inverse_root(A: Tensor, p: int, *, out: tuple[Tensor, Tensor], **options: Any) -> None:
    """Write (A + δI)^(-1/p) and the bound of the spectrum to out."""
    root, bound = out
    inverse_root_foreach([A], [root], [bound], p, **options)


def inverse_root_foreach(
    A: Sequence[Tensor],
    out: Sequence[Tensor],
    bounds: Sequence[Tensor],
    p: int,
    *,
    damping: float,
    relative_damping: float,
    method: str,
    schedule: Sequence[float],
    second_stage: Sequence[float],
    precision: str,
) -> None:
    """Write the roots of a list and the bounds of the spectra. Every precision is served by float32."""
    batches, written = [], []
    for S, root, bound in zip(A, out, bounds, strict=True):
        steps = _most_steps(method, S.shape[-1])
        if not S.numel():
            bound.zero_()
        elif steps == 0:
            _eigh_root(S, root, bound, p, damping, relative_damping)
        else:
            source, target, bound_target = _readable(S), _writable(root), _writable(bound)
            written += [(root, target), (bound, bound_target)]
            batches.append((source, target, bound_target, steps))
    if not batches:
        return
    kernels().inverse_root(
        [_batch(*batch) for batch in batches],
        p,
        schedule=schedule,
        shorter=_shorter(tuple(schedule)),
        second_stage=second_stage,
        damping=damping,
        relative_damping=relative_damping,
        threads=threads(),
    )
    for source, target, bound_target, steps in batches:
        if steps < ANY_STEPS:
            _solve_the_rest(source, target, bound_target, p, damping, relative_damping)
    for tensor, temporary in written:
        if temporary is not tensor:
            tensor.copy_(temporary)


def _most_steps(method: str, n: int) -> int:
    """Return with how many steps at most the iteration is the method of choice, 0 for never."""
    if method == "auto":
        return most_steps(kernels().isa, threads(), n)
    return ANY_STEPS if method == "newton_schulz" else 0


@lru_cache
def _shorter(schedule: tuple[float, ...]) -> tuple[tuple[float, tuple[float, ...]], ...]:
    """Return what may replace a schedule where the spectrum allows it: the default's promise is its error."""
    if schedule != _flat(coefficients.inverse_root_schedule("cushioned")):
        return ()
    return tuple((least, _flat(shorter)) for least, shorter in coefficients.shorter_schedules())


def _flat(schedule: coefficients.Schedule) -> tuple[float, ...]:
    return tuple(c for polynomial in schedule for c in polynomial)


def _eigh_root(
    A: Tensor, root: Tensor, bound: Tensor, p: int, damping: float, relative_damping: float
) -> None:
    n = A.shape[-1]
    if n <= TINY:
        tiny_eigh_root(A, p, damping, relative_damping, root, bound)
        return
    source, Y = _readable(A), torch.empty(A.numel() // n**2, n, n)
    found = torch.empty(len(Y), 1, 1)
    kernels().normalize(
        [_batch(source, Y, found, 0)], damping=damping, relative_damping=relative_damping, threads=threads()
    )
    # The factor takes the scale's root: the product is then exact in symmetry and needs no pass of its own.
    scale = Normalized(Y, found, torch.ones(())).scale(p)
    factor = eigh_factor(Y, p).mul_(scale.sqrt())
    syrk(factor.reshape(A.shape), C=None, alpha=1.0, beta=0.0, side="left", out=root)
    bound.copy_(found.reshape(bound.shape))


def _solve_the_rest(
    A: Tensor, root: Tensor, bound: Tensor, p: int, damping: float, relative_damping: float
) -> None:
    """Take by eigenvalues the roots that would have needed too many steps; their bounds are negative."""
    n = A.shape[-1]
    left = bound.reshape(-1) < 0
    if left.all():
        _eigh_root(A, root, bound, p, damping, relative_damping)
    if left.all() or not left.any():
        return
    S, bounds = A.reshape(-1, n, n)[left], torch.empty(int(left.sum()))
    roots = torch.empty_like(S)
    _eigh_root(S, roots, bounds, p, damping, relative_damping)
    root.view(-1, n, n)[left] = roots
    bound.view(-1)[left] = bounds


def _batch(A: Tensor, out: Tensor, bound: Tensor, steps: int) -> tuple[int, int, int, int, int, int]:
    """Return contiguous matrices of one size as the kernels take them."""
    n = A.shape[-1]
    return A.data_ptr(), out.data_ptr(), bound.data_ptr(), A.numel() // n**2, n, steps


def _readable(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float32).contiguous()


def _writable(tensor: Tensor) -> Tensor:
    """Return the tensor itself if a kernel can write it, else memory that is copied to it afterwards."""
    if tensor.dtype == torch.float32 and tensor.is_contiguous():
        return tensor
    return torch.empty(tensor.shape, dtype=torch.float32)
