"""Shampoo: gradients whitened on every side by roots of their second moments."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .._schema import compute_dtype
from ..ops import gram_ema_foreach_, inverse_root_foreach, whiten_foreach
from ._base import MatrixOptimizer
from ._blocks import Blocks, cut
from ._buckets import Work, buckets
from ._checks import require_choices, require_nonnegative, require_positive
from ._nonfinite import undone_if
from ._routing import Rules, matrices
from ._updates import bias_correction, descend_, gradient_like, learning_rate, new_adam_state


class Shampoo(MatrixOptimizer):
    """Gradients whitened on every side by roots of their second moments.

    For a gradient G (m, n) a step is

        L ← β₂L + (1-β₂) GGᵀ    R ← β₂R + (1-β₂) GᵀG            ("ema", divided by 1-β₂ᵗ)
        L ← L + GGᵀ             R ← R + GᵀG                     ("sum")
        P_L = (L + δI)^(-1/4)   P_R = (R + δI)^(-1/4)           on steps 1, f, 2f, ...
        M ← β₁M + (1-β₁)G;      U = P_L M P_R / (1-β₁ᵗ)
        W ← (1 - lr·weight_decay) W - lr·g·U

    with δ the damping times the largest row sum of |L| or |R|, and g = 1 or, with grafting, the ratio that gives U
    the norm of another optimizer's update. A tensor of k sides has k factors and exponents -1/(2k).

    Sides longer than ``block_size`` are cut into equal blocks, each pair of which is a matrix of its own. Sides
    over ``max_precond_dim`` have the diagonal of their factor. Stacks (e, m, n) are e matrices, higher orders
    (first, rest), unless ``fold`` is off. Vectors and scalars (biases, norms), matrices without a side short
    enough, and what ``rules`` leaves to Adam, are trained by AdamW with the same ``betas`` and ``eps``. `explain`
    says which is which.

    Args:
        params: Parameters, groups or named parameters, as torch.optim takes them.
        lr: Learning rate. With ``graft="adam"`` as for Adam; without grafting 3 to 10 times that.
        betas: Decays β₁ of the momentum and β₂ of the factors.
        eps: Added to the denominator of Adam and of Adam grafting.
        weight_decay: Decoupled weight decay.
        maximize: Ascend instead.
        accumulation: "ema" averages second moments, "sum" adds them up.
        damping: Added to the diagonal of factors, relative to their largest row sum of absolute values, which is
            an upper bound of the largest eigenvalue.
        graft: "adam" gives each matrix's update the norm of Adam's, "sgd" that of the momentum, "none" its own.
        precondition_frequency: Steps f between two computations of the roots.
        stagger: Let parameter i compute its roots on steps that are i modulo f, not all on the same; the first
            step computes all.
        block_size: Longest side of a block.
        max_precond_dim: Longest side that is whitened; longer ones have a diagonal factor.
        fold: See parameters of more than two dimensions as matrices; otherwise each dimension is a side.
        method: Of the roots, see `kpop_kernels.inverse_root`. Those of more than two sides are by eigh.
        rules: Name patterns and the sides that parameters of such names may have full factors for: "both",
            "left", "right" or "adam" for none. The first match counts. `rules_of` gives those of a model.
        on_nonfinite: "skip" leaves a parameter whose gradient holds NaN or Inf as it is, "raise" raises
            RuntimeError before anything changes.

    Raises:
        ValueError: A hyper-parameter is out of range.

    Numerics:
        State is float32 (float64 for float64 parameters) whatever the parameter's dtype: mn + 2m² + 2n² floats
        for an m×n matrix in one block, and mn more for Adam grafting. A root that is not finite leaves the
        previous one in place and counts in `failed_refreshes`.

    Source:
        Gupta, Koren & Singer, Shampoo: Preconditioned Stochastic Tensor Optimization (2018); blocks and
        grafting: Anil et al., Scalable Second Order Optimization for Deep Learning (2020). Reference:
        python_ref/optim/shampoo.py.
    """

    _shortest_side = 1

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 3e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        maximize: bool = False,
        accumulation: Literal["ema", "sum"] = "ema",
        damping: float = 1e-4,
        graft: Literal["adam", "sgd", "none"] = "adam",
        precondition_frequency: int = 10,
        stagger: bool = False,
        block_size: int = 1024,
        max_precond_dim: int = 8192,
        fold: bool = True,
        method: Literal["auto", "newton_schulz", "eigh"] = "auto",
        rules: Rules | None = None,
        on_nonfinite: Literal["skip", "raise"] = "skip",
    ) -> None:
        defaults = dict(
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            maximize=maximize,
            accumulation=accumulation,
            damping=damping,
            graft=graft,
            precondition_frequency=precondition_frequency,
            stagger=stagger,
            block_size=block_size,
            max_precond_dim=max_precond_dim,
            fold=fold,
            method=method,
            rules=rules,
            on_nonfinite=on_nonfinite,
        )
        super().__init__(params, defaults)

    def _validate(self, group: dict[str, Any]) -> None:
        require_nonnegative("Shampoo", damping=group["damping"])
        positive = ("precondition_frequency", "block_size", "max_precond_dim")
        require_positive("Shampoo", **{name: group[name] for name in positive})
        require_choices(
            "Shampoo",
            group,
            accumulation=("ema", "sum"),
            graft=("adam", "sgd", "none"),
            method=("auto", "newton_schulz", "eigh"),
        )

    def _new_state(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        rule = self._rule(parameter, group)
        if rule.method == "Adam":
            return new_adam_state(parameter, rule)
        blocks, full = self._cut(parameter, group)
        shape = (*blocks.batch, *blocks.dims)
        state: dict[str, Any] = {"exp_avg": parameter.new_zeros(shape, dtype=compute_dtype(parameter))}
        if group["graft"] == "adam":
            state["exp_avg_sq"] = torch.zeros_like(state["exp_avg"])
        for i, (size, is_full) in enumerate(zip(blocks.sizes, full, strict=True)):
            ones = state["exp_avg"].new_ones(blocks.total, size)
            state[f"root_{i}"] = torch.diag_embed(ones) if is_full else ones
            state[f"factor_{i}"] = torch.zeros_like(state[f"root_{i}"])
        return state

    def _cut(self, parameter: Tensor, group: dict[str, Any]) -> tuple[Blocks, tuple[bool, ...]]:
        """Return a parameter's blocks, and which of their sides have a full factor."""
        rule = self._rule(parameter, group)
        batch, dims, full = rule.shape[:-2], rule.shape[-2:], (rule.left, rule.right)
        if not group["fold"] and parameter.ndim > 2:
            batch, dims = (), tuple(parameter.shape)
            full = tuple(d <= group["max_precond_dim"] for d in dims)
        return cut(batch, dims, [not f for f in full], group["block_size"]), full

    def _cost(self, parameter: Tensor, group: dict[str, Any]) -> float:
        """Return the operations of a step: those of `MatrixOptimizer._cost` for each block."""
        if self._rule(parameter, group).method == "Adam":
            return super()._cost(parameter, group)
        blocks, full = self._cut(parameter, group)
        sides = [size for size, is_full in zip(blocks.sizes, full, strict=True) if is_full]
        elements, period = math.prod(blocks.sizes), group["precondition_frequency"]
        return blocks.total * (20 * elements + sum(6 * k * elements + 10 * k**3 / period for k in sides))

    def _update(self, work: Sequence[Work]) -> None:
        whitened = [item for item in work if "root_0" in item.state]
        self._adam_steps([item for item in work if "root_0" not in item.state])
        for bucket in buckets(whitened, lambda item: item.state["exp_avg"]):
            self._whitened_step(bucket)

    def _whitened_step(self, bucket: list[Work]) -> None:
        """Move parameters of one group; all roots that are due are computed in one call."""
        gradients = [gradient_like(item, "exp_avg") for item in bucket]
        cuts = [self._cut(item.parameter, item.group) for item in bucket]
        _accumulate(bucket, [blocks.split(G) for (blocks, _), G in zip(cuts, gradients, strict=True)])
        due = [item for item in bucket if self._renewal(item, self._periodic(item)) is not None]
        self._renew_roots(due)
        momenta = [_momentum(item, G) for item, G in zip(bucket, gradients, strict=True)]
        directions = _whitened(
            [blocks.split(M) for (blocks, _), M in zip(cuts, momenta, strict=True)],
            [item.state for item in bucket],
            [full for _, full in cuts],
        )
        for item, (blocks, _), G, M, U in zip(bucket, cuts, gradients, momenta, directions, strict=True):
            self._move(item, G, M, blocks.join(U))

    def _renew_roots(self, due: list[Work]) -> None:
        """Compute the roots of all factors; one that is not finite keeps its place."""
        by_order: dict[int, list[tuple[Work, int]]] = {}
        for item in due:
            order = _order(item.state)
            by_order.setdefault(order, []).extend((item, i) for i in range(order))
        for order, places in by_order.items():
            roots = _inverse_roots([_damped(item, i) for item, i in places], 2 * order, places[0][0].group)
            for (item, i), root in zip(places, roots, strict=True):
                finite = root.flatten(1).isfinite().all(1)
                keep = finite.reshape(-1, *[1] * (root.ndim - 1))
                item.state[f"root_{i}"] = torch.where(keep, root, item.state[f"root_{i}"])
                self._count_failures(~finite)

    def _move(self, item: Work, G: Tensor, M: Tensor, U: Tensor) -> None:
        """Move a parameter along a whitened momentum, grafted as its group wants it."""
        parameter, _, _, group, found_inf = item
        if group["graft"] != "none":
            blocks, _ = self._cut(parameter, group)
            U = _grafted(U, _graft_direction(M, G, item), matrix_dims=len(blocks.dims))
        rule, lr, decay = self._rule(parameter, group), learning_rate(group), self._decay(group)
        with matrices(parameter, rule) as matrix:
            descend_(matrix, U.reshape(rule.shape), lr=lr, decay=decay, found_inf=found_inf)


def _momentum(item: Work, G: Tensor) -> Tensor:
    """Update the average of gradients and return it, bias-corrected."""
    beta1, _ = item.group["betas"]
    with undone_if(item.found_inf, item.state["exp_avg"]) as (average,):
        average.lerp_(G, 1 - beta1)
    return average / bias_correction(beta1, item.state["step"])


def _order(state: dict[str, Any]) -> int:
    return sum(key.startswith("factor_") for key in state)


def _unfolded(blocks: Tensor, side: int) -> Tensor:
    """Return blocks (B, s_1, ..., s_k) as matrices with a side's index first: (B, s_i, the rest)."""
    return blocks.movedim(1 + side, 1).flatten(2)


def _accumulate(bucket: Sequence[Work], gradients: Sequence[Tensor]) -> None:
    """Feed the factors of parameters of one group with the blocks of their gradients, in one call."""
    group, beta, alpha = bucket[0].group, 1.0, 1.0
    if group["accumulation"] == "ema":
        beta = group["betas"][1]
        alpha = 1 - beta
    factors, operands = [], []
    with ExitStack() as stack:
        for item, G in zip(bucket, gradients, strict=True):
            for i in range(_order(item.state)):
                (factor,) = stack.enter_context(undone_if(item.found_inf, item.state[f"factor_{i}"]))
                rows = _unfolded(G, i)
                if factor.ndim == 3:
                    factors.append(factor)
                    operands.append(rows)
                else:
                    factor.mul_(beta).add_(rows.square().sum(-1), alpha=alpha)
        gram_ema_foreach_(factors, operands, beta=beta, alpha=alpha, side="left")


def _damped(item: Work, side: int) -> Tensor:
    """Return a factor, bias-corrected and damped."""
    factor, group = item.state[f"factor_{side}"], item.group
    if group["accumulation"] == "ema":
        factor = factor / bias_correction(group["betas"][1], item.state["step"])
    if factor.ndim == 2:
        return factor + group["damping"] * factor.amax(-1, keepdim=True)
    damped = factor.clone()
    damped.diagonal(dim1=-2, dim2=-1).add_(group["damping"] * factor.abs().sum(-1).amax(-1, keepdim=True))
    return damped


def _inverse_roots(factors: list[Tensor], p: int, group: dict[str, Any]) -> list[Tensor]:
    """Return factors to the power -1/p; zero gives zero."""
    full = [factor for factor in factors if factor.ndim == 3]
    if p in (2, 4):
        roots = inverse_root_foreach(full, p, method=group["method"])  # type: ignore[arg-type]
        assert isinstance(roots, list)
    else:
        roots = [_eigh_root(factor, p) for factor in full]
    by_eigenvalues = iter(roots)
    return [next(by_eigenvalues) if factor.ndim == 3 else _power(factor, p) for factor in factors]


def _eigh_root(factor: Tensor, p: int) -> Tensor:
    """Return a symmetric positive semidefinite batch to the power -1/p by its eigenvalues."""
    finite = factor.flatten(1).isfinite().all(1)[:, None, None]
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    eigvals, Q = torch.linalg.eigh(torch.where(finite, factor, identity))
    floor = torch.finfo(factor.dtype).eps * eigvals.amax(-1, keepdim=True)
    powers = _power(eigvals.clamp_min(0) + floor, p)
    return torch.where(finite, (Q * powers[:, None, :]) @ Q.mT, torch.nan)


def _power(values: Tensor, p: int) -> Tensor:
    return torch.where(values == 0, 0.0, values ** (-1 / p))


def _whitened(
    blocks: Sequence[Tensor], states: Sequence[dict[str, Any]], full: Sequence[tuple[bool, ...]]
) -> list[Tensor]:
    """Return blocks multiplied by the root of every side, all matrices between full roots in one call."""
    places = [i for i, sides in enumerate(full) if len(sides) == 2]
    roots = [[states[i][f"root_{side}"] if full[i][side] else None for i in places] for side in range(2)]
    found = dict(zip(places, whiten_foreach([blocks[i] for i in places], *roots), strict=True))
    whitened = []
    for i, M in enumerate(blocks):
        remaining = [side for side, is_full in enumerate(full[i]) if i not in found or not is_full]
        whitened.append(_times_roots(found.get(i, M), states[i], remaining))
    return whitened


def _times_roots(M: Tensor, state: dict[str, Any], sides: Sequence[int]) -> Tensor:
    """Return blocks multiplied by the roots of some sides."""
    for side in sides:
        root, rows = state[f"root_{side}"], M.movedim(1 + side, 1)
        moved = root @ rows.flatten(2) if root.ndim == 3 else root[..., None] * rows.flatten(2)
        M = moved.reshape(rows.shape).movedim(1, 1 + side)
    return M


def _graft_direction(M: Tensor, G: Tensor, item: Work) -> Tensor:
    """Return the update whose norm is wanted: the momentum, or Adam's."""
    if item.group["graft"] == "sgd":
        return M
    beta2 = item.group["betas"][1]
    with undone_if(item.found_inf, item.state["exp_avg_sq"]) as (v,):
        v.mul_(beta2).addcmul_(G, G, value=1 - beta2)
    return M / ((v / bias_correction(beta2, item.state["step"])).sqrt() + item.group["eps"])


def _grafted(U: Tensor, wanted: Tensor, *, matrix_dims: int) -> Tensor:
    """Return one update with the norm of another, matrix by matrix; the other itself where the first is zero."""
    dims = tuple(range(-matrix_dims, 0))
    norms = [torch.linalg.vector_norm(T, dim=dims, keepdim=True) for T in (U, wanted)]
    return torch.where(norms[0] > 0, U * (norms[1] / norms[0]), wanted)
