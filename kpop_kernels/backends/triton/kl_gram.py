"""Both factors of KL-Shampoo: whitening on one side, then the symmetric product added in place."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...tuning import ProductConfig, RotationConfig
from .kron_rotate import Factors, multiply_both_sides
from .symmetric import average_grams


def kl_gram_ema_foreach_(
    S_a: Sequence[Tensor],
    S_b: Sequence[Tensor],
    G: Sequence[Tensor],
    P_a: Sequence[Tensor | None],
    P_b: Sequence[Tensor | None],
    *,
    beta: float,
    eps: float,
    config: RotationConfig | None = None,
    symmetric: ProductConfig | None = None,
) -> None:
    """Update S_a with (G P_b)(G P_b)ᵀ / n and S_b with (P_a G)ᵀ(P_a G) / m, and add eps to their diagonals.

    Two launches whiten all items, two of symmetric products average.
    """
    count = len(G)
    G = [g.to(torch.float32) for g in G]
    lefts, rights = [None] * count + list(P_a), list(P_b) + [None] * count
    whitened = [
        g if L is R is None else torch.empty_like(g, memory_format=torch.contiguous_format)
        for g, L, R in zip(G * 2, lefts, rights, strict=True)
    ]
    places = [i for i, x in enumerate(whitened) if x is not G[i % count]]
    if places:
        multiply_both_sides(
            [G[i % count] for i in places],
            [lefts[i] for i in places],
            [rights[i] for i in places],
            out=[whitened[i] for i in places],
            factors=Factors(),
            config=config,
        )
    divisors = [g.shape[-1] for g in G] + [g.shape[-2] for g in G]
    average_grams(
        [*S_a, *S_b],
        whitened,
        alpha=[(1 - beta) / max(divisor, 1) for divisor in divisors],
        beta=beta,
        side=["left"] * count + ["right"] * count,
        diagonal=eps,
        config=symmetric,
    )
