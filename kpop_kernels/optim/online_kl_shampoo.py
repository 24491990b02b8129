"""Online KL Shampoo: both factors whitened by each other, their roots used in the same step."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .._schema import compute_dtype
from ..ops import gram_ema_foreach_, inverse_root_foreach, kl_gram_ema_foreach_, syrk, whiten_update_foreach_
from ._base import MatrixOptimizer
from ._buckets import Work, buckets
from ._checks import require_choices, require_nonnegative, require_positive
from ._nonfinite import undone_if
from ._routing import Rules
from ._triangle import pack, packed_length, unpack
from ._updates import gradient_like, learning_rate, new_adam_state

Side = Literal["left", "right"]

SIDES: tuple[tuple[Side, str, str], ...] = (("left", "L", "P_L"), ("right", "R", "P_R"))
"""Each side of a matrix with the state keys of its factor and of the factor's inverse root, both packed."""


class OnlineKLShampoo(MatrixOptimizer):
    """Whitening by the Kronecker factors that are closest to the gradients' covariance in KL divergence.

    For a gradient G (m, n), the factors' roots P_L, P_R of the last step and M = N = 0 at first, a step is

        M ← β₁M + (1-β₁)G;   N = β₁M + (1-β₁)G
        L ← β₂L + (1-β₂)/n·(G P_R)(G P_R)ᵀ + eps·I;   R ← β₂R + (1-β₂)/m·(P_L G)ᵀ(P_L G) + eps·I
        P_L = L^(-1/2);   P_R = R^(-1/2)
        W ← (1 - weight_decay·lr²/lr_peak) W - lr·c·P_L N P_R

    with c = √(m/n)/(√m + √n)/√v, v the variance of N for independent unit gradients, so that an update has an
    operator norm of about lr·√(m/n). Factors start from the first gradient that is not zero.

    Stacks (e, m, n) are e matrices, higher orders (first, rest). A side over ``max_precond_dim`` has no factor,
    its P is the identity. Vectors and scalars (biases, norms), and what ``rules`` leaves to Adam (embeddings,
    heads), are trained by AdamW with the same ``betas`` and ``eps`` and learning rate; give them a group of their
    own for another. `explain` says which is which.

    Args:
        params: Parameters, groups or named parameters, as torch.optim takes them.
        lr: Learning rate. The default belongs to large models; small ones train at 1e-2 to 3e-2.
        betas: Decays β₁ of the momentum and β₂ of the factors.
        eps: Added to the diagonal of the factors; also to Adam's denominator.
        weight_decay: Decoupled weight decay at the peak learning rate; it falls with the square of the rate.
        lr_peak: Peak learning rate; None is the rate a group has when it is added. With a peak of 0, decay is
            weight_decay·lr.
        maximize: Ascend instead.
        max_precond_dim: Longest side that gets a factor.
        method: Of the roots, see `kpop_kernels.inverse_root`.
        precision: Of the products in them, likewise.
        schedule: Coefficients of Newton–Schulz, likewise; "cans" is the published schedule.
        rules: Name patterns and the sides that parameters of such names may have factors for: "both", "left",
            "right" or "adam" for none. The first match counts. `rules_of` gives those of a model.
        on_nonfinite: "skip" leaves a parameter whose gradient holds NaN or Inf as it is, "raise" raises
            RuntimeError before anything changes.

    Raises:
        ValueError: A hyper-parameter is out of range.

    Numerics:
        State is float32 (float64 for float64 parameters) whatever the parameter's dtype: mn + m(m+1) + n(n+1)
        floats for an m×n matrix. A root that is not finite leaves the previous one in place and counts in
        `failed_refreshes`.

    Source:
        Zhang et al., Online KL Shampoo (2026); Lin et al., Understanding and Improving Shampoo and SOAP via
        Kullback–Leibler Minimization (2025); decay: Defazio, Why Gradients Rapidly Increase Near the End of
        Training (2025). Reference: python_ref/optim/online_kl_shampoo.py.
    """

    _shortest_side = 1

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.09434,
        *,
        betas: tuple[float, float] = (0.9684, 0.9482),
        eps: float = 1e-9,
        weight_decay: float = 0.0303,
        lr_peak: float | None = None,
        maximize: bool = False,
        max_precond_dim: int = 8192,
        method: Literal["auto", "newton_schulz", "eigh"] = "auto",
        precision: Literal["auto", "fp32", "tf32", "fp16", "bf16"] = "auto",
        schedule: Literal["cushioned", "cans"] = "cushioned",
        rules: Rules | None = None,
        on_nonfinite: Literal["skip", "raise"] = "skip",
    ) -> None:
        defaults = dict(
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            lr_peak=lr_peak,
            maximize=maximize,
            max_precond_dim=max_precond_dim,
            method=method,
            precision=precision,
            schedule=schedule,
            rules=rules,
            on_nonfinite=on_nonfinite,
        )
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its learning rate is its peak unless it gives another."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if group["lr_peak"] is None:
            group["lr_peak"] = float(group["lr"])

    def _validate(self, group: dict[str, Any]) -> None:
        require_positive("OnlineKLShampoo", max_precond_dim=group["max_precond_dim"])
        if group["lr_peak"] is not None:
            require_nonnegative("OnlineKLShampoo", lr_peak=group["lr_peak"])
        require_choices(
            "OnlineKLShampoo",
            group,
            method=("auto", "newton_schulz", "eigh"),
            precision=("auto", "fp32", "tf32", "fp16", "bf16"),
            schedule=("cushioned", "cans"),
        )

    def _decay(self, group: dict[str, Any]) -> float:
        """Return the decay in units of lr, which itself falls with lr (AdamC)."""
        peak, decay = group["lr_peak"], group["weight_decay"]
        if peak is None:
            peak = float(group.get("initial_lr", group["lr"]))
        return decay * float(group["lr"]) / peak if decay and peak else decay

    def _new_state(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        rule = self._rule(parameter, group)
        if rule.method == "Adam":
            return new_adam_state(parameter, rule)
        state: dict[str, Any] = {"exp_avg": parameter.new_zeros(rule.shape, dtype=compute_dtype(parameter))}
        for (side, *keys), n in zip(SIDES, rule.shape[-2:], strict=True):
            if getattr(rule, side):
                for key in keys:
                    state[key] = state["exp_avg"].new_zeros(*rule.shape[:-2], packed_length(n))
        return state

    def _cost(self, parameter: Tensor, group: dict[str, Any]) -> float:
        """Return the operations of a step: those of `MatrixOptimizer._cost`; 27 products m³ make a root of L."""
        cost, rule = super()._cost(parameter, group), self._rule(parameter, group)
        if group["method"] == "eigh":
            return cost
        *batch, m, n = rule.shape
        cubes = m**3 * rule.left + n**3 * rule.right
        return cost + math.prod(batch) * (27 * 2 - 10) * cubes

    def _update(self, work: Sequence[Work]) -> None:
        self._adam_steps([item for item in work if "exp_avg_sq" in item.state])
        whitened = [item for item in work if "exp_avg_sq" not in item.state]
        for bucket in buckets(whitened, lambda item: item.state["exp_avg"]):
            self._whitened_step(bucket)

    def _whitened_step(self, bucket: list[Work]) -> None:
        """Move parameters of one group; all their roots are computed in one call."""
        group = bucket[0].group
        lr, (beta1, beta2), eps = learning_rate(group), group["betas"], group["eps"]
        fresh = [item for item in bucket if self._renewal(item, _is_first) is not None]
        first = [_first_factors(item.state, gradient_like(item, "exp_avg"), eps=eps) for item in fresh]
        self._renew_roots(fresh, first)
        gradients = [gradient_like(item, "exp_avg") for item in bucket]
        factors = _next_factors([item.state for item in bucket], gradients, beta2=beta2, eps=eps)
        roots = self._renew_roots(bucket, factors)
        momenta = []
        for item, G in zip(bucket, gradients, strict=True):
            with undone_if(item.found_inf, item.state["exp_avg"]) as (M,):
                momenta.append(_nesterov_momentum(G, M, beta1))
        with self._matrices(bucket) as matrices:
            whiten_update_foreach_(
                matrices,
                momenta,
                [P.get("P_L") for P in roots],
                [P.get("P_R") for P in roots],
                lr=lr,
                weight_decay=self._decay(group),
                scale=[_shape_scale(*N.shape[-2:]) / math.sqrt(nesterov_variance(beta1)) for N in momenta],
                found_inf=[item.found_inf for item in bucket],
            )

    def _renew_roots(self, work: list[Work], factors: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        """Keep new factors and their roots in the states, and return the roots in full.

        Where a root is not finite, factor and root stay as they were.
        """
        places = [
            (i, factor, root) for i in range(len(work)) for _, factor, root in SIDES if factor in factors[i]
        ]
        roots: list[dict[str, Tensor]] = [{} for _ in work]
        if not places:
            return roots
        options = {name: work[0].group[name] for name in ("method", "precision", "schedule")}
        computed = _inverse_square_roots([factors[i][factor] for i, factor, _ in places], **options)
        for (i, factor, root), P in zip(places, computed, strict=True):
            state = work[i].state
            failed = ~P.isfinite().flatten(-2).all(-1)
            left_out = work[i].found_inf
            self._count_failures(failed if left_out is None else failed & (left_out == 0))
            if left_out is not None:
                failed = failed | (left_out != 0)
            roots[i][root] = torch.where(failed[..., None, None], unpack(state[root]), P)
            state[root] = pack(roots[i][root])
            state[factor] = torch.where(failed[..., None], state[factor], pack(factors[i][factor]))
        return roots


def spectral_mup_init_(
    weight: Tensor, norm: float = 0.07539, *, generator: torch.Generator | None = None
) -> Tensor:
    """Fill a weight with normal numbers whose matrix has an operator norm of about norm·√(m/n), and return it.

    The norm of an m×n matrix of standard normal entries is about √m + √n (the Marchenko–Pastur edge).

    Args:
        weight: (m, n), a stack (e, m, n), or (m, ...) of higher order, seen as (m, rest). Overwritten.
        norm: Operator norm between root-mean-square norms.
        generator: Source of randomness; None is torch's global one, as for torch.nn.init.

    Raises:
        ValueError: The weight has fewer than two dimensions.
    """
    if weight.ndim < 2:
        raise ValueError(f"spectral_mup_init_: weight has shape {tuple(weight.shape)}, it must be a matrix")
    m, n = weight.shape[-2:] if weight.ndim <= 3 else (weight.shape[0], weight[0].numel())
    std = norm * _shape_scale(m, n) if weight.numel() else 0.0
    return torch.nn.init.normal_(weight, 0.0, std, generator=generator)


def nesterov_variance(beta1: float) -> float:
    """Return the stationary variance of N = β₁M + (1-β₁)G for independent gradients of variance 1.

    M = (1-β₁) Σ β₁ᵏ G₋ₖ, so the weights in N are (1-β₁)(1+β₁) for the last gradient and (1-β₁)β₁ᵏ⁺¹ for the
    others; the sum of their squares is the result.
    """
    return (1 - beta1) / (1 + beta1) * (1 + 2 * beta1 - 2 * beta1**3)


def _is_first(step: int) -> bool:
    return step == 1


def _shape_scale(m: int, n: int) -> float:
    """Return √(m/n)/(√m + √n): what makes P_L N P_R an update of operator norm √(m/n)."""
    return math.sqrt(m / n) / (math.sqrt(m) + math.sqrt(n))


def _inverse_square_roots(S: list[Tensor], **options: Any) -> list[Tensor]:
    roots = inverse_root_foreach(S, 2, **options)
    assert isinstance(roots, list)
    return roots


def _first_factors(state: dict[str, Any], G: Tensor, *, eps: float) -> dict[str, Tensor]:
    """Return the factors that the first gradient gives, before any root."""
    return {factor: _first_factor(G, side, eps) for side, factor, _ in SIDES if factor in state}


def _first_factor(G: Tensor, side: Side, eps: float) -> Tensor:
    """Return √(m/(n‖G‖² + eps))·G Gᵀ with its root mean square and eps added to the diagonal; or the right one."""
    own, other = G.shape[-2:] if side == "left" else (G.shape[-1], G.shape[-2])
    largest = G.abs().amax((-2, -1), keepdim=True).clamp_min(torch.finfo(G.dtype).tiny)
    norm = largest * torch.linalg.vector_norm(G / largest, dim=(-2, -1), keepdim=True)
    norm = torch.hypot(norm, torch.full_like(norm, math.sqrt(eps / other)))
    S = syrk(G / norm.sqrt(), alpha=math.sqrt(own / other), side=side)
    shift = torch.linalg.vector_norm(S, dim=(-2, -1)) / math.sqrt(own) + eps
    S.diagonal(dim1=-2, dim2=-1).add_(shift[..., None])
    return S


def _next_factors(
    states: Sequence[dict[str, Any]], gradients: Sequence[Tensor], *, beta2: float, eps: float
) -> list[dict[str, Tensor]]:
    """Return the factors averaged with gradients, whitened on the other side by the roots of the last step."""
    factors = [
        {factor: unpack(state[factor]) for _, factor, _ in SIDES if factor in state} for state in states
    ]
    both = [i for i, own in enumerate(factors) if len(own) == len(SIDES)]
    kl_gram_ema_foreach_(
        [factors[i]["L"] for i in both],
        [factors[i]["R"] for i in both],
        [gradients[i] for i in both],
        [unpack(states[i]["P_L"]) for i in both],
        [unpack(states[i]["P_R"]) for i in both],
        beta=beta2,
        eps=eps,
    )
    _average_single_sides(factors, gradients, beta2=beta2, eps=eps)
    return factors


def _average_single_sides(
    factors: Sequence[dict[str, Tensor]], gradients: Sequence[Tensor], *, beta2: float, eps: float
) -> None:
    """Average the factors that are the only one of their matrix: the root of its other side is the identity."""
    alone = [
        (own[factor], G, side)
        for own, G in zip(factors, gradients, strict=True)
        for side, factor, _ in SIDES
        if list(own) == [factor]
    ]
    gram_ema_foreach_(
        [S for S, _, _ in alone],
        [G for _, G, _ in alone],
        beta=beta2,
        alpha=[(1 - beta2) / G.shape[-1 if side == "left" else -2] for _, G, side in alone],
        side=[side for _, _, side in alone],
    )
    for S, _, _ in alone:
        S.diagonal(dim1=-2, dim2=-1).add_(eps)


def _nesterov_momentum(G: Tensor, M: Tensor, beta1: float) -> Tensor:
    """Update the momentum M with a gradient and return N."""
    M.lerp_(G, 1 - beta1)
    return G.lerp(M, beta1)
