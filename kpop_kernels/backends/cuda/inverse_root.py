"""Inverse roots of matrices up to order 128, one thread block a matrix, one launch for a list of any orders."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ... import coefficients
from .._spectrum import TINY, eigh_factor, normalize, tiny_eigh_root
from .native import FLOATS, dense, kernels

LARGEST = 128
LARGEST_STEPS = 64


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
    """Write the roots of a list and the bounds of the spectra.

    tf32 is served by products to the precision of float32, bf16 by those of float16, whose scales leave room.
    Orders up to 8 are computed in float64.
    """
    if method == "eigh":
        for item, root, bound in zip(A, out, bounds, strict=True):
            _eigh_root(item, root, bound, p, damping, relative_damping)
        return
    float16 = precision in ("fp16", "bf16")
    stages = [_stage(tuple(flat), float16) for flat in (schedule, second_stage)]
    A = [item.contiguous() for item in A]
    device = A[0].device
    with kernels(device) as cuda, dense(*out, *bounds) as written:
        batches = [
            (item.data_ptr(), root.data_ptr(), bound.data_ptr(), bound.numel(), item.shape[-1])
            for item, root, bound in zip(A, written[: len(A)], written[len(A) :], strict=True)
            if item.numel()
        ]
        for bound, item in zip(written[len(A) :], A, strict=True):
            if not item.numel():
                bound.zero_()
        cuda.inverse_root(
            batches,
            FLOATS[A[0].dtype],
            p,
            float16=float16,
            first=stages[0],
            second=stages[1],
            damping=damping,
            relative_damping=relative_damping,
        )


@lru_cache(maxsize=64)
def _stage(schedule: tuple[float, ...], scaled: bool) -> list[float]:
    """Return a schedule as the kernel takes it: the scales of Y and Z, what undoes them, five numbers a step.

    Float16 operands are multiplied by powers of two; the numbers of a step change from one step's to the next's.
    """
    pairs = list(zip(schedule[::2], schedule[1::2], strict=True))
    if len(pairs) > LARGEST_STEPS:
        raise ValueError(
            f"inverse_root: the schedule has {len(pairs)} steps, on this device at most {LARGEST_STEPS}"
        )
    if scaled:
        scales = coefficients.power_of_two_scales(tuple(pairs))
    else:
        scales = (coefficients.Maxima(1.0, 1.0, 1.0),) * (len(pairs) + 1)
    numbers = [scales[0].Y, scales[0].Z, 1 / scales[-1].Y, 1 / scales[-1].Z]
    for (a, b), now, then in zip(pairs, scales, scales[1:], strict=False):
        numbers += [
            now.P / (now.Z * now.Y),
            a * then.Y / now.Y,
            b * then.Y / (now.Y * now.P),
            a * then.Z / now.Z,
            b * then.Z / (now.Z * now.P),
        ]
    return numbers


def _eigh_root(
    A: Tensor, root: Tensor, bound: Tensor, p: int, damping: float, relative_damping: float
) -> None:
    n = A.shape[-1]
    if not A.numel():
        bound.zero_()
        return
    if n <= TINY:
        tiny_eigh_root(A, p, damping, relative_damping, root, bound)
        return
    normalized = normalize(A.to(torch.float32).reshape(-1, n, n), damping, relative_damping)
    factor = eigh_factor(normalized.Y, p)
    X = factor @ factor.mT * normalized.scale(p)
    root.copy_(((X + X.mT) / 2).reshape(A.shape))
    bound.copy_((normalized.bound * normalized.unit).reshape(bound.shape))
