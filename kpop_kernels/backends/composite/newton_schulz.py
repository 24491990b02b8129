"""Polar factors in aten."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..._schema import compute_dtype

GRAM_ASPECT_RATIO = 2
"""Long side over short side from which the Gram form needs fewer operations."""


def newton_schulz(
    X: Tensor,
    *,
    coefficients: Sequence[float],
    method: str,
    restarts: Sequence[int],
    normalize: bool,
    eps: float,
    out: Tensor,
) -> None:
    """Write the polar factor of X to out."""
    if not X.numel():
        return
    m, n = X.shape[-2:]
    wide = X.to(compute_dtype(X)).reshape(-1, m, n)
    wide = wide.mT if m > n else wide
    if normalize:
        wide = _normalize(wide, eps)
    steps = list(zip(coefficients[::3], coefficients[1::3], coefficients[2::3], strict=True))
    gram = method == "gram" or (method == "auto" and max(m, n) >= GRAM_ASPECT_RATIO * min(m, n))
    wide = _gram(wide, steps, restarts) if gram else _standard(wide, steps)
    out.copy_((wide.mT if m > n else wide).reshape(X.shape))


def newton_schulz_foreach(X: Sequence[Tensor], out: Sequence[Tensor], **options: Any) -> None:
    """Write the polar factors of a list: tensors of one shape are computed as one batch."""
    shapes: dict[tuple[int, ...], list[int]] = {}
    for i, item in enumerate(X):
        shapes.setdefault(tuple(item.shape[-2:]), []).append(i)
    for shape, members in shapes.items():
        counts = [X[i].shape[:-2].numel() for i in members]
        batch = torch.cat([X[i].reshape(count, *shape) for i, count in zip(members, counts, strict=True)])
        result = torch.empty_like(batch)
        newton_schulz(batch, **options, out=result)
        for i, factor in zip(members, result.split(counts), strict=True):
            out[i].copy_(factor.reshape(out[i].shape))


def _normalize(X: Tensor, eps: float) -> Tensor:
    """Return X/(‖X‖_F + eps); a power of two takes out the size of the entries before they are squared."""
    largest = X.abs().amax((-2, -1), keepdim=True)
    unit = torch.exp2(largest.log2().floor().clamp(-120, 120))
    X = X / unit
    norm = torch.linalg.vector_norm(X, dim=(-2, -1), keepdim=True) + eps / unit
    return X / torch.where(norm == 0, 1.0, norm)


def _standard(X: Tensor, steps: list[tuple[float, float, float]]) -> Tensor:
    for a, b, c in steps:
        A = torch.bmm(X, X.mT)
        B = torch.baddbmm(A, A, A, beta=b, alpha=c)
        X = torch.baddbmm(X, B, X, beta=a)
    return X


def _gram(X: Tensor, steps: list[tuple[float, float, float]], restarts: Sequence[int]) -> Tensor:
    """Iterate on R = XXᵀ and the polynomial Q of it; X itself is touched at restarts and at the end only."""
    R, Q = torch.bmm(X, X.mT), None
    for step, (a, b, c) in enumerate(steps):
        if step in restarts and Q is not None:
            X = torch.bmm(Q, X)
            R, Q = torch.bmm(X, X.mT), None
        T = torch.baddbmm(R, R, R, beta=b, alpha=c)
        T.diagonal(dim1=-2, dim2=-1).add_(a)
        Q = T if Q is None else torch.bmm(Q, T)
        if step + 1 < len(steps) and step + 1 not in restarts:
            R = torch.bmm(torch.bmm(T, R), T)
    return X if Q is None else torch.bmm(Q, X)
