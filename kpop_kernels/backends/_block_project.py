"""A matrix in two bases and their complements, in aten."""

import torch
from torch import Tensor

from .._schema import compute_dtype

Parts = tuple[Tensor, Tensor, Tensor, Tensor]


def block_project(G: Tensor, U_L: Tensor, U_R: Tensor, *, out: Parts) -> None:
    """Write U_Lᵀ G U_R and the three parts in the complements, with two products with G."""
    main, A, B, C = out
    G = G.to(C.dtype)
    Y = G @ U_R
    main.copy_(U_L.mT @ Y)
    A.copy_(Y - U_L @ main)
    Z = U_L.mT @ G
    B.copy_(Z - main @ U_R.mT)
    C.copy_((G - U_L @ Z).sub_(A @ U_R.mT))


def block_lift_(
    X: Tensor,
    main: Tensor | None,
    A: Tensor | None,
    B: Tensor | None,
    C: Tensor | None,
    U_L: Tensor,
    U_R: Tensor,
    *,
    alpha: Tensor,
    beta: Tensor,
    found_inf: Tensor | None = None,
) -> None:
    """Update X ← beta·X + alpha·(U_L main U_Rᵀ + A U_Rᵀ + U_L B + C) unless found_inf is not zero."""
    dtype = compute_dtype(X)
    left = A if main is None else U_L @ main if A is None else A + U_L @ main
    terms = [
        C,
        None if left is None else left @ U_R.mT,
        None if B is None else U_L @ B,
    ]
    lift = sum((term for term in terms if term is not None), start=X.new_zeros((), dtype=dtype))
    moved = (X.to(dtype) * beta.to(dtype) + lift * alpha.to(dtype)).to(X.dtype)
    X.copy_(moved if found_inf is None else torch.where(found_inf == 0, moved, X))
