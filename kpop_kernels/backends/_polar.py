"""Newton–Schulz for polar factors in aten, open for faster products of symmetric results."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._schema import compute_dtype
from ._lists import groups, scatter, stack

GRAM_ASPECT_RATIO = 2
"""Long side over short side from which the Gram form needs fewer operations."""

Steps = list[tuple[float, float, float]]


class Products:
    """The products of batches, here computed in full where results are symmetric."""

    def product(
        self, A: Tensor, B: Tensor, *, C: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0
    ) -> Tensor:
        """Return alpha·A B + beta·C."""
        return torch.bmm(A, B) if C is None else torch.baddbmm(C, A, B, beta=beta, alpha=alpha)

    def gram(self, X: Tensor) -> Tensor:
        """Return X Xᵀ."""
        return self.product(X, X.mT)

    def commuting(
        self, A: Tensor, B: Tensor, *, C: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0
    ) -> Tensor:
        """Return alpha·A B + beta·C for symmetric matrices, of which A and B commute."""
        return self.product(A, B, C=C, alpha=alpha, beta=beta)

    def polynomial(self, R: Tensor, a: float, b: float, c: float) -> Tensor:
        """Return aI + bR + cR² for symmetric R."""
        T = self.commuting(R, R, C=R, alpha=c, beta=b)
        if a:
            T.diagonal(dim1=-2, dim2=-1).add_(a)
        return T

    def apply(self, Q: Tensor, X: Tensor, *, a: float = 0.0) -> Tensor:
        """Return Q X + aX for symmetric Q."""
        return self.product(Q, X, C=X if a else None, beta=a)


class HalfProducts(Products):
    """Products of a backend that computes one triangle and stores it twice, where that pays."""

    def __init__(
        self, symm_mm: Callable[..., None], syrk: Callable[..., None], pays: Callable[[int, int, int], bool]
    ) -> None:
        """Take a backend's operators, and what tells whether they are faster for `batch` products n×k by k×n."""
        self._symm_mm, self._syrk, self._pays = symm_mm, syrk, pays

    def gram(self, X: Tensor) -> Tensor:
        """Return X Xᵀ."""
        batch, n, k = X.shape
        if not self._pays(batch, n, k):
            return super().gram(X)
        out = X.new_empty(batch, n, n)
        self._syrk(X, C=None, alpha=1.0, beta=0.0, side="left", out=out)
        return out

    def commuting(
        self, A: Tensor, B: Tensor, *, C: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0
    ) -> Tensor:
        """Return alpha·A B + beta·C for symmetric matrices, of which A and B commute."""
        if not self._pays(*A.shape):
            return super().commuting(A, B, C=C, alpha=alpha, beta=beta)
        out = torch.empty_like(A)
        self._symm_mm(A, B, C=C, alpha=alpha, beta=beta, out=out)
        return out


def newton_schulz(
    X: Tensor,
    *,
    coefficients: Sequence[float],
    method: str,
    restarts: Sequence[int],
    normalize: bool,
    eps: float,
    out: Tensor,
    products: Products,
) -> None:
    """Write the polar factor of X to out."""
    if not X.numel():
        return
    m, n = X.shape[-2:]
    wide = X.to(compute_dtype(X)).reshape(-1, m, n)
    wide = wide.mT if m > n else wide
    if normalize:
        wide = normalized(wide, eps)
    if takes_gram_form(m, n, method):
        wide = gram_form(wide, steps_of(coefficients), restarts, products)
    else:
        wide = standard_form(wide, steps_of(coefficients), products)
    out.copy_((wide.mT if m > n else wide).reshape(X.shape))


def newton_schulz_foreach(
    X: Sequence[Tensor], out: Sequence[Tensor], *, products: Products, **options: Any
) -> None:
    """Write the polar factors of a list: tensors of one shape are computed as one batch."""
    for members in groups([item.shape[-2:] for item in X]).values():
        batch = stack(X, members)
        result = torch.empty_like(batch)
        newton_schulz(batch, **options, out=result, products=products)
        scatter(result, out, members)


def steps_of(coefficients: Sequence[float]) -> Steps:
    """Return the coefficients of each step."""
    return list(zip(coefficients[::3], coefficients[1::3], coefficients[2::3], strict=True))


def takes_gram_form(m: int, n: int, method: str) -> bool:
    """Tell which form a method chooses for matrices m×n."""
    return method == "gram" or (method == "auto" and max(m, n) >= GRAM_ASPECT_RATIO * min(m, n))


def normalized(X: Tensor, eps: float) -> Tensor:
    """Return X/(‖X‖_F + eps); a power of two takes out the size of the entries before they are squared."""
    largest = X.abs().amax((-2, -1), keepdim=True)
    unit = torch.exp2(largest.log2().floor().clamp(-120, 120))
    X = X / unit
    norm = torch.linalg.vector_norm(X, dim=(-2, -1), keepdim=True) + eps / unit
    return X / torch.where(norm == 0, 1.0, norm)


def standard_form(X: Tensor, steps: Steps, products: Products) -> Tensor:
    """Iterate on wide matrices X themselves."""
    for a, b, c in steps:
        A = products.gram(X)
        X = products.apply(products.polynomial(A, 0.0, b, c), X, a=a)
    return X


def gram_form(X: Tensor, steps: Steps, restarts: Sequence[int], products: Products) -> Tensor:
    """Iterate on R = XXᵀ and the polynomial Q of it; X itself is touched at restarts and at the end only."""
    R, Q = products.gram(X), None
    for step, (a, b, c) in enumerate(steps):
        if step in restarts and Q is not None:
            X = products.apply(Q, X)
            R, Q = products.gram(X), None
        T = products.polynomial(R, a, b, c)
        Q = T if Q is None else products.commuting(Q, T)
        if step + 1 < len(steps) and step + 1 not in restarts:
            R = products.commuting(products.commuting(T, R), T)
    return X if Q is None else products.apply(Q, X)
