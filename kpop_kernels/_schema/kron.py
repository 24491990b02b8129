"""Operators of Kronecker-factored preconditioning: covariances, rotations, Adam in an eigenbasis."""

from torch import Tensor

from . import checks as require
from .operator import Operator, Result, declare


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


def _check_factors(
    op: str, G: Tensor, names: tuple[str, str], left: Tensor | None, right: Tensor | None
) -> None:
    factors = {names[0]: left, names[1]: right}
    require.require_floating(op, **factors)
    require.require_device(op, G.device, **factors)
    _require_factors(op, G, names, left, right)


def _require_factors(
    op: str, G: Tensor, names: tuple[str, str], left: Tensor | None, right: Tensor | None
) -> None:
    require.require_matrix(op, G=G)
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
    _check_factors("kron_rotate", G, ("Q_L", "Q_R"), Q_L, Q_R)


def _check_kron_adam_(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    Q_L: Tensor | None,
    Q_R: Tensor | None,
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: Tensor,
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> None:
    op = "kron_adam_"
    require.require_floating(op, param=param, grad=grad)
    require.require_shape(op, param.shape, "like param", grad=grad, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq)
    require.require_device(
        op,
        param.device,
        grad=grad,
        exp_avg=exp_avg,
        exp_avg_sq=exp_avg_sq,
        Q_L=Q_L,
        Q_R=Q_R,
        lr=lr,
        step=step,
        found_inf=found_inf,
    )
    moments = require.compute_dtype(param)
    require.require_dtype(op, moments, "for this param", exp_avg=exp_avg, exp_avg_sq=exp_avg_sq)
    require.require_dtype(op, moments, "like the moments", Q_L=Q_L, Q_R=Q_R)
    _require_factors(op, param, ("Q_L", "Q_R"), Q_L, Q_R)
    require.require_scalar(op, lr=lr, step=step, found_inf=found_inf)
    require.require_count(op, step=step)
    require.require_fraction(op, beta1=beta1, beta2=beta2)
    require.require_not_negative(op, eps=eps, weight_decay=weight_decay)


def _check_rebase_moments_(
    exp_avg: Tensor, exp_avg_sq: Tensor, P_L: Tensor | None, P_R: Tensor | None
) -> None:
    op = "rebase_moments_"
    require.require_floating(op, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq)
    require.require_shape(op, exp_avg.shape, "like exp_avg", exp_avg_sq=exp_avg_sq)
    require.require_device(op, exp_avg.device, exp_avg_sq=exp_avg_sq)
    _check_factors(op, exp_avg, ("P_L", "P_R"), P_L, P_R)


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

kron_adam_ = declare(
    Operator(
        "kron_adam_",
        "Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, Tensor? Q_L, Tensor? Q_R, "
        "*, Tensor lr, float beta1, float beta2, float eps, float weight_decay, Tensor step, "
        "bool maximize=False, Tensor? found_inf=None",
        _check_kron_adam_,
    )
)

rebase_moments_ = declare(
    Operator(
        "rebase_moments_",
        "Tensor(a!) exp_avg, Tensor(b!) exp_avg_sq, Tensor? P_L, Tensor? P_R",
        _check_rebase_moments_,
    )
)
