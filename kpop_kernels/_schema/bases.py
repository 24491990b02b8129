"""Operators that find bases of Kronecker factors, and that split a matrix by them."""

import torch
from torch import Tensor

from . import checks as require
from .foreach import declare_foreach
from .operator import Operator, Result, declare

REFRESH_METHODS = ("auto", "qr", "eigh")
SIDES = ("left", "right")


def _check_refresh_eigenbasis(
    S: Tensor, Q: Tensor | None, *, method: str = "auto", sort: bool = True
) -> None:
    op = "refresh_eigenbasis"
    require.require_floating(op, S=S)
    require.require_square(op, S=S)
    require.require_shape(op, S.shape, "like S", Q=Q)
    require.require_dtype(op, require.compute_dtype(S), "for this S", Q=Q)
    require.require_device(op, S.device, Q=Q)
    require.require_choice(op, "method", method, REFRESH_METHODS)
    if Q is None and method == "qr":
        raise ValueError(f"{op}: Q is None, it must be given for method 'qr', which starts from it")


def _refreshed(S: Tensor, Q: Tensor | None, **_: object) -> tuple[Result, ...]:
    dtype = require.compute_dtype(S)
    square = Result(S.shape, dtype)
    return square, Result(S.shape[:-1], dtype), square, Result(S.shape[:-2], torch.bool)


def _check_nystrom_eigh(
    G: Tensor,
    U: Tensor | None,
    eigvals: Tensor | None,
    Psi: Tensor,
    *,
    rank: int,
    power_iterations: int,
    beta: float,
    side: str,
) -> None:
    op = "nystrom_eigh"
    require.require_floating(op, G=G)
    require.require_matrix(op, G=G, Psi=Psi)
    require.require_choice(op, "side", side, SIDES)
    *batch, m, n = G.shape
    length = m if side == "left" else n
    dtype = require.compute_dtype(G)
    require.require_integer(op, 0, length, rank=rank)
    require.require_dtype(op, dtype, "for this G", U=U, eigvals=eigvals, Psi=Psi)
    require.require_device(op, G.device, U=U, eigvals=eigvals, Psi=Psi)
    require.require_shape(op, (*batch, length, rank), "for this G, side and rank", U=U)
    require.require_shape(op, (*batch, rank), "for this G and rank", eigvals=eigvals)
    if (U is None) != (eigvals is None):
        raise ValueError(f"{op}: one of U and eigvals is None, both or neither must be")
    require.require_shape(op, (*batch, length, Psi.shape[-1]), "for this G and side", Psi=Psi)
    require.require_integer(op, 0, 2**31 - 1, power_iterations=power_iterations)
    require.require_fraction(op, beta=beta)


def _eigenpairs(G: Tensor, *_: Tensor | None, rank: int, side: str, **__: object) -> tuple[Result, ...]:
    *batch, m, n = G.shape
    dtype = require.compute_dtype(G)
    U = Result((*batch, m if side == "left" else n, rank), dtype)
    return U, Result((*batch, rank), dtype), Result(batch, torch.bool)


def _check_bases(op: str, G: Tensor, U_L: Tensor, U_R: Tensor) -> None:
    require.require_matrix(op, U_L=U_L, U_R=U_R)
    require.require_dtype(op, require.compute_dtype(G), "to compute with", U_L=U_L, U_R=U_R)
    require.require_device(op, G.device, U_L=U_L, U_R=U_R)
    *batch, m, n = G.shape
    require.require_shape(op, (*batch, m, U_L.shape[-1]), "(..., rows, rank)", U_L=U_L)
    require.require_shape(op, (*batch, n, U_R.shape[-1]), "(..., columns, rank)", U_R=U_R)


def _check_block_project(G: Tensor, U_L: Tensor, U_R: Tensor) -> None:
    require.require_floating("block_project", G=G)
    require.require_matrix("block_project", G=G)
    _check_bases("block_project", G, U_L, U_R)


def _parts(G: Tensor, U_L: Tensor, U_R: Tensor) -> tuple[Result, ...]:
    *batch, m, n = G.shape
    r_L, r_R = U_L.shape[-1], U_R.shape[-1]
    shapes = ((r_L, r_R), (m, r_R), (r_L, n), (m, n))
    return tuple(Result((*batch, *shape), require.compute_dtype(G)) for shape in shapes)


def _check_block_lift_(
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
    op = "block_lift_"
    require.require_floating(op, X=X)
    require.require_matrix(op, X=X)
    _check_bases(op, X, U_L, U_R)
    parts = {"main": main, "A": A, "B": B, "C": C}
    require.require_dtype(op, require.compute_dtype(X), "to compute with", **parts)
    require.require_device(op, X.device, **parts, alpha=alpha, beta=beta, found_inf=found_inf)
    for (name, part), result in zip(parts.items(), _parts(X, U_L, U_R), strict=True):
        require.require_shape(op, tuple(result.shape), "for this X and these bases", **{name: part})
    require.require_scalar(op, alpha=alpha, beta=beta, found_inf=found_inf)


refresh_eigenbasis = declare(
    Operator(
        "refresh_eigenbasis",
        'Tensor S, Tensor? Q, *, str method="auto", bool sort=True',
        _check_refresh_eigenbasis,
        results=_refreshed,
        result_count=4,
    )
)

nystrom_eigh = declare(
    Operator(
        "nystrom_eigh",
        "Tensor G, Tensor? U, Tensor? eigvals, Tensor Psi, *, int rank, int power_iterations, "
        "float beta, str side",
        _check_nystrom_eigh,
        results=_eigenpairs,
        result_count=3,
    )
)

block_project = declare(
    Operator(
        "block_project",
        "Tensor G, Tensor U_L, Tensor U_R",
        _check_block_project,
        results=_parts,
        result_count=4,
    )
)

block_lift_ = declare(
    Operator(
        "block_lift_",
        "Tensor(a!) X, Tensor? main, Tensor? A, Tensor? B, Tensor? C, Tensor U_L, Tensor U_R, *, "
        "Tensor alpha, Tensor beta, Tensor? found_inf=None",
        _check_block_lift_,
    )
)

declare_foreach(block_project, "G", "U_L", "U_R")
declare_foreach(block_lift_, "X", "main", "A", "B", "C", "U_L", "U_R", "found_inf")
