"""Moments in a refreshed basis: products of the moments, and of their factors with every element squared."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...tuning import RotationConfig
from .kron_rotate import Factors, multiply_both_sides


def rebase_moments_foreach_(
    exp_avg: Sequence[Tensor],
    exp_avg_sq: Sequence[Tensor],
    P_L: Sequence[Tensor | None],
    P_R: Sequence[Tensor | None],
    *,
    config: RotationConfig | None = None,
) -> None:
    """Move the moments of every item into its refreshed basis: P_L m P_Rᵀ and (P_L∘P_L) v (P_R∘P_R)ᵀ."""
    for moments, squared in ((exp_avg, False), (exp_avg_sq, True)):
        # A product cannot be written over what it reads; the second of two does not read the moment.
        one_sided = [L is None or R is None for L, R in zip(P_L, P_R, strict=True)]
        out = [torch.empty_like(m) if one else m for m, one in zip(moments, one_sided, strict=True)]
        factors = Factors(right_transposed=True, squared=squared)
        multiply_both_sides(moments, P_L, P_R, out=out, factors=factors, config=config)
        pairs = [(m, moved) for m, moved, one in zip(moments, out, one_sided, strict=True) if one]
        if pairs:
            torch._foreach_copy_([m for m, _ in pairs], [moved for _, moved in pairs])
