"""Polar factors of a list of matrices of any shapes: each product is one launch for all of them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...tuning import ProductConfig
from .. import _polar
from .._lists import by_size, scatter, stack
from . import grouped
from .spectrum import normalize_wide_
from .symmetric import by_configuration
from .workspace import Group, Workspace

_LARGEST_FLOAT16 = 2.0**15
_LEAST_SCALE = 2.0**4


def newton_schulz(
    X: Tensor,
    *,
    coefficients: Sequence[float],
    method: str,
    restarts: Sequence[int],
    normalize: bool,
    eps: float,
    out: Tensor,
    config: ProductConfig | None = None,
) -> None:
    """Write the polar factor of X to out."""
    newton_schulz_foreach(
        [X],
        [out],
        coefficients=coefficients,
        method=method,
        restarts=restarts,
        normalize=normalize,
        eps=eps,
        config=config,
    )


def newton_schulz_foreach(
    X: Sequence[Tensor],
    out: Sequence[Tensor],
    *,
    coefficients: Sequence[float],
    method: str,
    restarts: Sequence[int],
    normalize: bool,
    eps: float,
    config: ProductConfig | None = None,
) -> None:
    """Write the polar factors of a list; see `kpop_kernels.newton_schulz`.

    Operands of products are float32, for bfloat16 matrices float16: that has more digits than they bring along.
    """
    steps = _polar.steps_of(coefficients)
    wide = [item.mT if item.shape[-2] > item.shape[-1] else item for item in X]
    for gram in (False, True):
        # An item of the other form counts as empty, which leaves it out.
        sizes = by_size(
            [
                x if _polar.takes_gram_form(x.shape[-2], x.shape[-1], method) == gram else x[..., :0]
                for x in wide
            ]
        )
        if not sizes:
            continue
        batches = [stack(wide, members).to(torch.float32) for members in sizes]
        scale = _scale(X[0].dtype, steps, restarts, gram)
        results = [item.mT if item.shape[-2] > item.shape[-1] else item for item in out]
        for own, alike in by_configuration(batches, 4 if scale is None else 2, config).items():
            products = _WorkspaceProducts([batches[i] for i in alike], scale, own, eps if normalize else None)
            factors = products.start
            if gram:
                factors = _polar.gram_form(factors, steps, restarts, products)
            else:
                factors = _polar.standard_form(factors, steps, products)
            for i, factor in zip(alike, products.results(factors), strict=True):
                scatter(factor, results, sizes[i])


def _scale(dtype: torch.dtype, steps: _polar.Steps, restarts: Sequence[int], gram: bool) -> float | None:
    """Return the power of two that float16 operands are multiplied by; None for float32 operands.

    It is as large as the entries allow, because those of a large orthogonal matrix are small. Where coefficients
    leave no room, as many steps of the Gram form without a restart do, operands are float32.
    """
    if dtype != torch.bfloat16:
        return None
    largest, product = 1.5, 1.0
    for step, (a, b, c) in enumerate(steps):
        product = abs(a) if step in restarts else product * abs(a)
        largest = max(largest, 1.5 * abs(b) + 2.25 * abs(c), product if gram else abs(a))
    scale = 2.0 ** math.floor(math.log2(_LARGEST_FLOAT16 / largest))
    return scale if scale >= _LEAST_SCALE else None


class _WorkspaceProducts(_polar.Products):
    """Products of all matrices of a workspace; what `_polar` takes for a batch is a buffer, times the scale."""

    def __init__(
        self, batches: Sequence[Tensor], scale: float | None, config: ProductConfig, eps: float | None
    ) -> None:
        groups = [Group(*batch.shape) for batch in batches]
        device, dtype = batches[0].device, torch.float32 if scale is None else torch.float16
        self._workspace = Workspace(groups, config, device)
        self._scale = scale or 1.0
        X = self._workspace.filled(batches, wide=True)
        if eps is not None:
            normalize_wide_(self._workspace, X, eps)
        self.start = X if scale is None else X.mul_(scale).to(dtype)

    def results(self, X: Tensor) -> list[Tensor]:
        """Return the batches in a buffer of wide matrices."""
        return [batch.to(torch.float32) / self._scale for batch in self._workspace.wides(X)]

    def gram(self, X: Tensor) -> Tensor:
        """Return X Xᵀ."""
        return grouped.symmetric_product(self._workspace, X, out=self._squares(X), alpha=1 / self._scale)

    def commuting(
        self, A: Tensor, B: Tensor, *, C: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0
    ) -> Tensor:
        """Return alpha·A B + beta·C for symmetric matrices, of which A and B commute."""
        out, alpha = torch.empty_like(A), alpha / self._scale
        return grouped.symmetric_product(self._workspace, A, B, C, out=out, alpha=alpha, beta=beta)

    def polynomial(self, R: Tensor, a: float, b: float, c: float) -> Tensor:
        """Return aI + bR + cR² for symmetric R."""
        return grouped.symmetric_product(
            self._workspace,
            *(R, R, R),
            out=torch.empty_like(R),
            alpha=c / self._scale,
            beta=b,
            diagonal=a * self._scale,
        )

    def apply(self, Q: Tensor, X: Tensor, *, a: float = 0.0) -> Tensor:
        """Return Q X + aX for symmetric Q."""
        out, alpha = torch.empty_like(X), 1 / self._scale
        return grouped.product(
            self._workspace, Q, X, X if a else None, out=out, alpha=alpha, beta=a, wide=True
        )

    def _squares(self, X: Tensor) -> Tensor:
        return X.new_empty(self._workspace.end.square_offset)
