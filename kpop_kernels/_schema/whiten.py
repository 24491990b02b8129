"""Operators of Shampoo and Online KL Shampoo: whitening by roots of both factors, and factors of the whitened."""

from torch import Tensor

from . import checks as require
from .foreach import declare_foreach
from .kron import check_factors
from .operator import Operator, Result, declare


def _check_whiten(G: Tensor, P_L: Tensor | None, P_R: Tensor | None) -> None:
    require.require_floating("whiten", G=G)
    check_factors("whiten", G, ("P_L", "P_R"), P_L, P_R)


def _check_whiten_update_(
    param: Tensor,
    G: Tensor,
    P_L: Tensor | None,
    P_R: Tensor | None,
    *,
    lr: Tensor,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> None:
    op = "whiten_update_"
    require.require_floating(op, param=param, G=G)
    require.require_shape(op, param.shape, "like param", G=G)
    require.require_device(op, param.device, G=G, lr=lr, found_inf=found_inf)
    check_factors(op, G, ("P_L", "P_R"), P_L, P_R)
    require.require_scalar(op, lr=lr, found_inf=found_inf)
    require.require_not_negative(op, weight_decay=weight_decay)


def _check_kl_gram_ema_(
    S_a: Tensor, S_b: Tensor, G: Tensor, P_a: Tensor | None, P_b: Tensor | None, *, beta: float, eps: float
) -> None:
    op = "kl_gram_ema_"
    require.require_floating(op, S_a=S_a, S_b=S_b, G=G)
    check_factors(op, G, ("P_a", "P_b"), P_a, P_b)
    *batch, m, n = G.shape
    require.require_shape(op, (*batch, m, m), "like G Gᵀ", S_a=S_a)
    require.require_shape(op, (*batch, n, n), "like GᵀG", S_b=S_b)
    require.require_dtype(op, S_a.dtype, "like S_a", S_b=S_b)
    require.require_device(op, G.device, S_a=S_a, S_b=S_b)
    require.require_fraction(op, beta=beta)
    require.require_not_negative(op, eps=eps)


whiten = declare(
    Operator(
        "whiten",
        "Tensor G, Tensor? P_L, Tensor? P_R",
        _check_whiten,
        results=lambda G, P_L, P_R: (Result(G.shape, G.dtype),),
    )
)

whiten_update_ = declare(
    Operator(
        "whiten_update_",
        "Tensor(a!) param, Tensor G, Tensor? P_L, Tensor? P_R, *, Tensor lr, float weight_decay=0.0, "
        "float scale=1.0, bool maximize=False, Tensor? found_inf=None",
        _check_whiten_update_,
    )
)

kl_gram_ema_ = declare(
    Operator(
        "kl_gram_ema_",
        "Tensor(a!) S_a, Tensor(b!) S_b, Tensor G, Tensor? P_a, Tensor? P_b, *, float beta, float eps",
        _check_kl_gram_ema_,
    )
)

declare_foreach(whiten, "G", "P_L", "P_R")
declare_foreach(whiten_update_, "param", "G", "P_L", "P_R", "scale", "found_inf")
declare_foreach(kl_gram_ema_, "S_a", "S_b", "G", "P_a", "P_b")
