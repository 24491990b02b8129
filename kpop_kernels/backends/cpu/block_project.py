"""A matrix in two bases and their complements: small products stacked, so that all of a matrix is written once."""

from torch import Tensor

from .. import _block_project
from .._dense import dense
from .native import kernels, threads
from .products import address, is_short, single, write_back


def block_project(G: Tensor, U_L: Tensor, U_R: Tensor, *, out: _block_project.Parts) -> None:
    """Write U_Lᵀ G U_R and the three parts in the complements."""
    if not G.numel() or not is_short(G):
        _block_project.block_project(G, U_L, U_R, out=out)
        return
    G, bases = single(G), [U.contiguous() for U in (U_L, U_R)]
    with dense(*out) as parts:
        addresses = [address(tensor) for tensor in (*bases, *parts)]
        kernels().block_project(address(G), addresses, _sizes(G, U_L, U_R), threads=threads())


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
    if found_inf is not None and found_inf.item():
        return
    if not X.numel() or not is_short(X):
        _block_project.block_lift_(X, main, A, B, C, U_L, U_R, alpha=alpha, beta=beta)
        return
    lifted = single(X)
    tensors = [None if t is None else t.contiguous() for t in (U_L, U_R, main, A, B, C)]
    kernels().block_lift(
        address(lifted),
        [address(tensor) for tensor in tensors],
        _sizes(X, U_L, U_R),
        alpha=alpha.item(),
        beta=beta.item(),
        threads=threads(),
    )
    write_back([(X, lifted)])


def _sizes(X: Tensor, U_L: Tensor, U_R: Tensor) -> tuple[int, int, int, int, int]:
    """Return the number of matrices, rows, columns and both ranks."""
    m, n = X.shape[-2:]
    return X.shape[:-2].numel(), m, n, U_L.shape[-1], U_R.shape[-1]
