"""Both factors of KL-Shampoo: whitening on one side, then the symmetric product added in place."""

import torch
from torch import Tensor

from ...tuning import ProductConfig, RotationConfig
from .kron_rotate import Factors, multiply_both_sides
from .symmetric import syrk


def kl_gram_ema_(
    S_a: Tensor,
    S_b: Tensor,
    G: Tensor,
    P_a: Tensor | None,
    P_b: Tensor | None,
    *,
    beta: float,
    eps: float,
    config: RotationConfig | None = None,
    symmetric: ProductConfig | None = None,
) -> None:
    """Update S_a with (G P_b)(G P_b)ᵀ / n and S_b with (P_a G)ᵀ(P_a G) / m, and add eps to their diagonals."""
    m, n = G.shape[-2:]
    G = G.to(torch.float32)
    for S, L, R, side, count in ((S_a, None, P_b, "left", n), (S_b, P_a, None, "right", m)):
        X = G if L is R is None else torch.empty_like(G, memory_format=torch.contiguous_format)
        if X is not G:
            multiply_both_sides([G], [L], [R], out=[X], factors=Factors(), config=config)
        alpha = (1 - beta) / max(count, 1)
        syrk(X, C=S, alpha=alpha, beta=beta, side=side, out=S, config=symmetric)
        S.diagonal(dim1=-2, dim2=-1).add_(eps)
