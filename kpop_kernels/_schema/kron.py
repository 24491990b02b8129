"""Operators of Kronecker-factored preconditioning: covariances, rotations, Adam in an eigenbasis."""

from typing import Any

from torch import Tensor

from . import checks as require
from .foreach import declare_foreach
from .operator import Operator, Result, declare
from .quantize import QUANTIZABLE, RANDOM, require_affine, require_dynamic, require_place, require_random

MOMENT_BASES = ("rotated", "original")


def _require_factor(op: str, name: str, Q: Tensor | None, size: int, G: Tensor) -> None:
    """Require a square factor for one side of G, either shared by the batch or one for each matrix."""
    if Q is None:
        return
    if Q.shape == (size, size):
        return
    allowed = [(size, size)]
    if G.ndim > 2:
        allowed.append((*G.shape[:-2], size, size))
    # Tuples are compared, not hashed: the sizes are symbols where a graph is compiled for any shape.
    if tuple(Q.shape) not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise ValueError(f"{op}: {name} has shape {tuple(Q.shape)}, it must be {wanted}")


def check_factors(
    op: str, G: Tensor, names: tuple[str, str], left: Tensor | None, right: Tensor | None
) -> None:
    """Require a matrix, and for each of its sides a square factor or None."""
    require.require_matrix(op, G=G)
    factors = dict(zip(names, (left, right), strict=True))
    require.require_floating(op, **factors)
    require.require_device(op, G.device, **factors)
    _require_factor(op, names[0], left, G.shape[-2], G)
    _require_factor(op, names[1], right, G.shape[-1], G)


def _check_gram_ema_(S: Tensor, X: Tensor, *, beta: float, alpha: float, side: str) -> None:
    op = "gram_ema_"
    require.require_choice(op, "side", side, ("left", "right"))
    require.require_matrix(op, S=S, X=X)
    require.require_floating(op, S=S, X=X)
    require.require_device(op, S.device, X=X)
    n = X.shape[-2] if side == "left" else X.shape[-1]
    product = "X Xᵀ" if side == "left" else "XᵀX"
    require.require_shape(op, (*X.shape[:-2], n, n), f"like {product}", S=S)


def _check_kron_rotate(G: Tensor, Q_L: Tensor | None, Q_R: Tensor | None, *, inverse: bool = False) -> None:
    require.require_floating("kron_rotate", G=G)
    check_factors("kron_rotate", G, ("Q_L", "Q_R"), Q_L, Q_R)


def _check_kron_adam_(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    Q_L: Tensor | None,
    Q_R: Tensor | None,
    *,
    step: Tensor,
    **settings: Any,
) -> None:
    op = "kron_adam_"
    require.require_floating(op, param=param, grad=grad)
    require.require_shape(op, param.shape, "like param", grad=grad, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq)
    require.require_device(op, param.device, grad=grad, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq, step=step)
    moments = require.compute_dtype(param)
    require.require_dtype(op, moments, "for this param", exp_avg=exp_avg, exp_avg_sq=exp_avg_sq)
    require.require_dtype(op, moments, "like the moments", Q_L=Q_L, Q_R=Q_R)
    check_factors(op, param, ("Q_L", "Q_R"), Q_L, Q_R)
    require.require_scalar(op, step=step)
    require.require_count(op, step=step)
    _check_adam_settings(op, param, **settings)


def _check_adam_settings(
    op: str,
    param: Tensor,
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    exp_avg_basis: str = "rotated",
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> None:
    require.require_device(op, param.device, lr=lr, found_inf=found_inf)
    require.require_scalar(op, lr=lr, found_inf=found_inf)
    require.require_fraction(op, beta1=beta1, beta2=beta2)
    require.require_not_negative(op, eps=eps, weight_decay=weight_decay)
    require.require_not_negative(op, clip=0.0 if clip is None else clip)
    require.require_choice(op, "exp_avg_basis", exp_avg_basis, MOMENT_BASES)


def _check_kron_adam8_(
    param: Tensor,
    grad: Tensor,
    exp_avg_codes: Tensor,
    exp_avg_scales: Tensor,
    exp_avg_zero_points: Tensor,
    exp_avg_sq_codes: Tensor,
    exp_avg_sq_absmax: Tensor,
    Q_L: Tensor | None,
    Q_R: Tensor | None,
    *,
    step: Tensor,
    seed: int,
    stream: int,
    offset: int = 0,
    block_size: int = 256,
    **settings: Any,
) -> None:
    op = "kron_adam8_"
    require.require_dtype_among(op, QUANTIZABLE, param=param, grad=grad)
    require.require_shape(op, param.shape, "like param", grad=grad)
    require.require_device(op, param.device, grad=grad)
    exp_avg = (exp_avg_codes, exp_avg_scales, exp_avg_zero_points)
    require_affine(op, param, block_size, *exp_avg, kept="exp_avg_")
    require_dynamic(op, param, block_size, exp_avg_sq_codes, exp_avg_sq_absmax, kept="exp_avg_sq_")
    require_random(op, step, stream, offset, param.device)
    require.require_count(op, step=step)
    require.require_dtype(op, require.compute_dtype(param), "for this param", Q_L=Q_L, Q_R=Q_R)
    check_factors(op, param, ("Q_L", "Q_R"), Q_L, Q_R)
    _check_adam_settings(op, param, **settings)


def _check_rebase_moments_(
    exp_avg: Tensor, exp_avg_sq: Tensor, P_L: Tensor | None, P_R: Tensor | None
) -> None:
    op = "rebase_moments_"
    require.require_floating(op, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq)
    require.require_shape(op, exp_avg.shape, "like exp_avg", exp_avg_sq=exp_avg_sq)
    require.require_device(op, exp_avg.device, exp_avg_sq=exp_avg_sq)
    check_factors(op, exp_avg, ("P_L", "P_R"), P_L, P_R)


gram_ema_ = declare(
    Operator("gram_ema_", "Tensor(a!) S, Tensor X, *, float beta, float alpha, str side", _check_gram_ema_)
)

kron_rotate = declare(
    Operator(
        "kron_rotate",
        "Tensor G, Tensor? Q_L, Tensor? Q_R, *, bool inverse=False",
        _check_kron_rotate,
        results=lambda G, Q_L, Q_R, *, inverse=False: (Result(G.shape, G.dtype),),
    )
)

_ADAM_SCALARS = "Tensor lr, float beta1, float beta2, float eps, float weight_decay"
_ADAM_OPTIONS = 'str exp_avg_basis="rotated", float? clip=None, bool maximize=False, Tensor? found_inf=None'

kron_adam_ = declare(
    Operator(
        "kron_adam_",
        "Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, Tensor? Q_L, Tensor? Q_R, "
        f"*, {_ADAM_SCALARS}, Tensor step, {_ADAM_OPTIONS}",
        _check_kron_adam_,
    )
)

kron_adam8_ = declare(
    Operator(
        "kron_adam8_",
        "Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg_codes, Tensor(c!) exp_avg_scales, "
        "Tensor(d!) exp_avg_zero_points, Tensor(e!) exp_avg_sq_codes, Tensor(f!) exp_avg_sq_absmax, "
        f"Tensor? Q_L, Tensor? Q_R, *, {_ADAM_SCALARS}, {RANDOM}, int block_size=256, {_ADAM_OPTIONS}",
        _check_kron_adam8_,
    )
)

rebase_moments_ = declare(
    Operator(
        "rebase_moments_",
        "Tensor(a!) exp_avg, Tensor(b!) exp_avg_sq, Tensor? P_L, Tensor? P_R",
        _check_rebase_moments_,
    )
)

declare_foreach(gram_ema_, "S", "X", "alpha", "side")
declare_foreach(kron_adam_, "param", "grad", "exp_avg", "exp_avg_sq", "Q_L", "Q_R", "step", "found_inf")
declare_foreach(
    kron_adam8_,
    *("param", "grad", "exp_avg_codes", "exp_avg_scales", "exp_avg_zero_points"),
    *("exp_avg_sq_codes", "exp_avg_sq_absmax", "Q_L", "Q_R", "step", "stream", "offset", "found_inf"),
    check_numbers=require_place,
)
declare_foreach(rebase_moments_, "exp_avg", "exp_avg_sq", "P_L", "P_R")
