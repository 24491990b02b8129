"""Muon: momentum, orthogonalized by Newton–Schulz."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor
from torch.optim.optimizer import ParamsT

from .._schema import compute_dtype
from ..ops import newton_schulz_foreach
from ._base import MatrixOptimizer
from ._buckets import Work, buckets
from ._checks import require_choices, require_fractions, require_positive
from ._nonfinite import undone_if
from ._routing import Rules, matrices
from ._updates import descend_, gradient_like, learning_rate, new_adam_state

Adjustment = Literal["original", "match_rms_adamw", "spectral"]

_ADJUSTMENTS = {
    "original": lambda m, n: math.sqrt(max(1.0, m / n)),
    "match_rms_adamw": lambda m, n: 0.2 * math.sqrt(max(m, n)),
    "spectral": lambda m, n: math.sqrt(m / n),
}
"""Factor of the learning rate for an update of singular values near 1, by shape."""


class Muon(MatrixOptimizer):
    """Momentum, orthogonalized by Newton–Schulz (MomentUm Orthogonalized by Newton–Schulz).

    For a gradient G (m, n) with momentum μ a step is

        B ← μB + (1-μ)G;   N = μB + (1-μ)G (Nesterov) or B
        O ≈ U Vᵀ of N = U diag(σ) Vᵀ
        W ← (1 - lr·weight_decay) W - lr·c(m, n)·O

    Stacks (e, m, n) are e matrices, higher orders (first, rest). Vectors and scalars (biases, norms), and what
    ``rules`` leaves to Adam (embeddings, heads), are trained by AdamW with ``betas`` and ``eps`` at the same
    learning rate; give them a group of their own for another. `explain` says which is which.

    Args:
        params: Parameters, groups or named parameters, as torch.optim takes them.
        lr: Learning rate.
        weight_decay: Decoupled weight decay.
        momentum: Decay μ.
        nesterov: Use Nesterov momentum.
        ns_coefficients: Of Newton–Schulz: "muon", "polar_express", "cans", or (a, b, c) of every step.
        ns_steps: Number of Newton–Schulz steps.
        adjust_lr_fn: Factor c of the learning rate. "original" (and None) is √max(1, m/n); "match_rms_adamw" is
            0.2·√max(m, n), which makes the update about as large as AdamW's; "spectral" is √(m/n), which gives
            the update the same operator norm between root-mean-square norms whatever the shape.
        betas: Decays of Adam's moments.
        eps: Added to Adam's denominator.
        maximize: Ascend instead.
        rules: Name patterns and treatments: "adam" leaves parameters of such names to AdamW, the others
            orthogonalize. The first match counts. `rules_of` gives those of a model.
        on_nonfinite: "skip" leaves a parameter whose gradient holds NaN or Inf as it is, "raise" raises
            RuntimeError before anything changes.

    Raises:
        ValueError: A hyper-parameter is out of range.

    Numerics:
        Momentum and orthogonalization are float32 (float64 for float64 parameters) whatever the parameter's
        dtype; torch.optim.Muon orthogonalizes in bfloat16. State of an m×n matrix: mn floats.

    Source:
        Jordan et al., Muon (2024); "match_rms_adamw": Liu et al., Muon is Scalable for LLM Training (2025);
        "spectral": Yang et al., A Spectral Condition for Feature Learning (2023). Reference:
        python_ref/optim/muon.py.
    """

    _shortest_side = 1

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        *,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: str | tuple[float, float, float] = "muon",
        ns_steps: int = 5,
        adjust_lr_fn: Adjustment | None = None,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        maximize: bool = False,
        rules: Rules | None = None,
        on_nonfinite: Literal["skip", "raise"] = "skip",
    ) -> None:
        defaults = dict(
            lr=lr,
            weight_decay=weight_decay,
            momentum=momentum,
            nesterov=nesterov,
            ns_coefficients=ns_coefficients,
            ns_steps=ns_steps,
            adjust_lr_fn=adjust_lr_fn,
            betas=betas,
            eps=eps,
            maximize=maximize,
            rules=rules,
            on_nonfinite=on_nonfinite,
        )
        super().__init__(params, defaults)

    def _validate(self, group: dict[str, Any]) -> None:
        require_fractions("Muon", momentum=group["momentum"])
        require_positive("Muon", ns_steps=group["ns_steps"])
        if isinstance(group["ns_coefficients"], str):
            require_choices("Muon", group, ns_coefficients=("muon", "polar_express", "cans"))
        elif not isinstance(group["ns_coefficients"], Sequence) or len(group["ns_coefficients"]) != 3:
            raise ValueError(
                f"Muon: ns_coefficients is {group['ns_coefficients']!r}, it must be a name or three numbers"
            )
        if group["adjust_lr_fn"] is not None:
            require_choices("Muon", group, adjust_lr_fn=tuple(_ADJUSTMENTS))

    def _new_state(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        rule = self._rule(parameter, group)
        if rule.method == "Adam":
            return new_adam_state(parameter, rule)
        return {"momentum_buffer": parameter.new_zeros(rule.shape, dtype=compute_dtype(parameter))}

    def _cost(self, parameter: Tensor, group: dict[str, Any]) -> float:
        """Return the operations of a step: each of Newton–Schulz takes 4mnk + 2k³ with k the shorter side."""
        rule = self._rule(parameter, group)
        if rule.method == "Adam":
            return super()._cost(parameter, group)
        *batch, m, n = rule.shape
        k = min(m, n)
        return math.prod(batch) * (10 * m * n + group["ns_steps"] * (4 * m * n * k + 2 * k**3))

    def _explanation(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, str]:
        columns = super()._explanation(parameter, group)
        return columns if columns["treated"] == "Adam" else columns | {"treated": "orthogonalized"}

    def _update(self, work: Sequence[Work]) -> None:
        orthogonalized = [item for item in work if "momentum_buffer" in item.state]
        self._adam_steps([item for item in work if "momentum_buffer" not in item.state])
        for bucket in buckets(orthogonalized, lambda item: item.state["momentum_buffer"]):
            self._orthogonal_step(bucket)

    def _orthogonal_step(self, bucket: list[Work]) -> None:
        """Move parameters of one group; their momenta are orthogonalized in one call."""
        group = bucket[0].group
        directions = _orthogonalized([_momentum(item) for item in bucket], group)
        adjust = _ADJUSTMENTS[group["adjust_lr_fn"] or "original"]
        lr, decay = learning_rate(group), self._decay(group)
        for item, direction in zip(bucket, directions, strict=True):
            scale = adjust(*direction.shape[-2:])
            with matrices(item.parameter, self._rule(item.parameter, group)) as matrix:
                descend_(matrix, direction, lr=lr, decay=decay, scale=scale, found_inf=item.found_inf)


def _momentum(item: Work) -> Tensor:
    """Update the momentum with a gradient and return what is to be orthogonalized."""
    mu, G = item.group["momentum"], gradient_like(item, "momentum_buffer")
    with undone_if(item.found_inf, item.state["momentum_buffer"]) as (B,):
        B.lerp_(G, 1 - mu)
    return G.lerp(B, mu) if item.group["nesterov"] else B


def _orthogonalized(N: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
    coefficients: Any = group["ns_coefficients"]
    if not isinstance(coefficients, str):
        coefficients = [tuple(coefficients)] * group["ns_steps"]
    return newton_schulz_foreach(N, steps=group["ns_steps"], coefficients=coefficients)
