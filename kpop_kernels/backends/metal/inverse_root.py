"""Inverse roots on Apple GPUs: small matrices in threadgroup memory from the first step to the last.

Up to order 8 the kernel computes with pairs of floats, for there is no float64.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _lists
from .._spectrum import TINY, eigh_factor, normalize, spectrum_bound, tiny_eigh_root
from . import _shader
from ._torch_products import product
from .symmetric import symm_mm, syrk

LARGEST_ORDER = 64
"""Up to which a matrix has room in threadgroup memory."""

_THREADS = {"inverse_root": 256, "tiny_root": 64}

# A dispatch that takes long is stopped while a display is attached: so many take 50 ms on the slowest.
_MATRICES_PER_LAUNCH = 2048


def inverse_root(
    A: Tensor,
    p: int,
    *,
    damping: float,
    relative_damping: float,
    method: str,
    schedule: Sequence[float],
    second_stage: Sequence[float],
    precision: str,
    out: tuple[Tensor, Tensor],
) -> None:
    """Write (A + δI)^(-1/p) and the bound of the spectrum to out. Every precision is served by float32."""
    root, bound = out
    n = A.shape[-1]
    if not A.numel():
        bound.zero_()
        return
    S = A.to(torch.float32).reshape(-1, n, n)
    if method == "eigh" and n <= TINY:
        tiny_eigh_root(S, p, damping, relative_damping, root, bound)
    elif method == "eigh":
        _eigh_root(S, p, damping, relative_damping, root, bound)
    elif n <= LARGEST_ORDER:
        options = [damping, relative_damping, *schedule, *second_stage]
        _small_roots(S, p, options, (len(schedule) // 2, len(second_stage) // 2), root, bound)
    else:
        _large_roots(S, p, damping, relative_damping, schedule, second_stage, root, bound)


def inverse_root_foreach(
    A: Sequence[Tensor], out: Sequence[Tensor], bounds: Sequence[Tensor], p: int, **options: Any
) -> None:
    """Write the roots of a list and the bounds of the spectra."""
    _lists.inverse_roots(inverse_root, A, out, bounds, p, **options)


def _small_roots(
    S: Tensor, p: int, options: list[float], steps: tuple[int, int], root: Tensor, bound: Tensor
) -> None:
    n = S.shape[-1]
    S = S.contiguous()
    name = "tiny_root" if n <= TINY else "inverse_root"
    roots, bounds = torch.empty_like(S), torch.empty(len(S), dtype=torch.float32, device=S.device)
    for first in range(0, len(S), _MATRICES_PER_LAUNCH):
        matrices = slice(first, first + _MATRICES_PER_LAUNCH)
        _shader.kernel(name, name)(
            S[matrices],
            roots[matrices],
            bounds[matrices],
            [n, p, *steps],
            list(map(float, options)),
            threads=len(bounds[matrices]) * _THREADS[name],
            group_size=_THREADS[name],
        )
    root.copy_(roots.reshape(root.shape))
    bound.copy_(bounds.reshape(bound.shape))


def _large_roots(
    S: Tensor,
    p: int,
    damping: float,
    relative_damping: float,
    schedule: Sequence[float],
    second_stage: Sequence[float],
    root: Tensor,
    bound: Tensor,
) -> None:
    normalized = normalize(S, damping, relative_damping)
    X = _iterate(normalized.Y, schedule)[1]
    if p == 1:
        X = _square(X)
    if p == 4:
        L = spectrum_bound(X)
        X = _iterate(X / L, second_stage)[0] * L.sqrt()
    root.copy_((X * normalized.scale(p)).reshape(root.shape))
    bound.copy_((normalized.bound * normalized.unit).reshape(bound.shape))


def _iterate(Y: Tensor, schedule: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return Y^(1/2) and Y^(-1/2): P = ZY in full, Y and Z, which its rounding leaves symmetric, by halves."""
    Z, P = torch.eye(Y.shape[-1], dtype=Y.dtype, device=Y.device).expand_as(Y), Y
    for step, (a, b) in enumerate(zip(schedule[::2], schedule[1::2], strict=True)):
        if step:
            P = product(Z, Y)
        next_Y, next_Z = torch.empty_like(Y), torch.empty_like(Y)
        symm_mm(Y, P, C=Y, alpha=b, beta=a, out=next_Y)
        symm_mm(P, Z, C=Z, alpha=b, beta=a, out=next_Z)
        Y, Z = next_Y, next_Z
    return Y, Z


def _square(X: Tensor) -> Tensor:
    out = torch.empty_like(X)
    syrk(X, C=None, alpha=1.0, beta=0.0, side="left", out=out)
    return out


def _eigh_root(
    S: Tensor, p: int, damping: float, relative_damping: float, root: Tensor, bound: Tensor
) -> None:
    normalized = normalize(S, damping, relative_damping)
    # The factor takes the scale's root: the product is then exact in symmetry and needs no pass of its own.
    root.copy_(_square(eigh_factor(normalized.Y, p) * normalized.scale(p).sqrt()).reshape(root.shape))
    bound.copy_((normalized.bound * normalized.unit).reshape(bound.shape))
