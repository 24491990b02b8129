"""Clean: Adam in the leading eigenvectors of both Kronecker factors, with pooled moments for the rest."""

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor
from torch.optim.optimizer import ParamsT

from .._schema import compute_dtype
from ._buckets import Work, keep
from ._low_rank import LowRankOptimizer, new_low_rank_state
from ._routing import Rules
from ._updates import new_adam_state


class Clean(LowRankOptimizer):
    """Adam in the leading eigenvectors of both Kronecker factors, with pooled moments for the rest.

    U_L (m, r) and U_R (n, r) are the leading eigenvectors of averages of GGᵀ and GᵀG. Every f steps, on steps 1,
    f + 1, 2f + 1, ..., a randomized Nyström approximation renews them, and moments are carried over. With
    P = I - UUᵀ on each side a gradient G (m, n) has four parts,

        S = U_Lᵀ G U_R    A = P_L G U_R    B = U_Lᵀ G P_R    C = P_L G P_R

    S has Adam's two moments for each entry; A and B have first moments for each entry, second ones for each
    column of A and row of B; C has a second moment alone, one number. With N the first over the root of the
    second, bias-corrected, a step is

        W ← (1 - lr·weight_decay) W - lr·alpha·(U_L N_S U_Rᵀ + N_A U_Rᵀ + U_L N_B + γ-limited N_C)

    Stacks (e, m, n) are e matrices, higher orders (first, rest). Vectors and scalars (biases, norms), matrices
    with a side longer than ``max_precond_dim`` (embeddings, heads) and what ``rules`` does not give both sides
    are trained by AdamW with the same ``betas`` and ``eps``. `explain` says which is which.

    Args:
        params: Parameters, groups or named parameters, as torch.optim takes them.
        lr: Learning rate.
        betas: Decays of the moments.
        shampoo_beta: Decay of the averages of GGᵀ and GᵀG at each refresh; None is the second of ``betas``.
        eps: Added to denominators.
        weight_decay: Decoupled weight decay.
        maximize: Ascend instead.
        rank: Number r of eigenvectors; a matrix with a shorter side has as many as that.
        oversampling: Random columns beyond the rank in the sketch of a refresh.
        power_iterations: Products with the factor before the last one of a refresh.
        precondition_frequency: Steps f between two refreshes.
        max_precond_dim: Longest side of a matrix that has bases.
        pool: "mean" pools second moments as means, so that the entries of all parts of a step have about unit
            size. "sum" is published: it shrinks A and B by the roots of m and n and C by that of mn.
        alpha: Factor of the whole step but its decay.
        gamma: Largest growth of the limited norm in a step.
        limiter_scope: What is limited: "C", "residual" for all but S, "total", or "off".
        transport: "published" carries first moments part by part, "exact" together, so that what moves from one
            part to another is kept.
        clip: Limit normalized entries of S, A and B to what they could not exceed if the second moments were not
            left behind by a refresh.
        stagger: Let parameter i refresh i steps after the common ones; the first refresh is common.
        seed: Of the random sketches, which are a function of it, the step and the matrix's shape.
        rules: Name patterns and the sides that parameters of such names may have bases for: "both", or anything
            else for Adam. The first match counts. `rules_of` gives those of a model.
        on_nonfinite: "skip" leaves a parameter whose gradient holds NaN or Inf as it is, "raise" raises
            RuntimeError before anything changes.

    Raises:
        ValueError: A hyper-parameter is out of range.

    Numerics:
        State is float32 (float64 for float64 parameters) whatever the parameter's dtype: 2(m + n)r + 2r² + 4r + 2
        floats. Parts below 1e-5 of the gradient's norm are rounding errors and count as zero. Pooled second
        moments are kept as means whatever ``pool`` is. A basis that cannot be renewed stays and counts in
        `failed_refreshes`.

    Source:
        The Clean paper. Reference: python_ref/optim/clean.py.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 3e-3,
        *,
        betas: tuple[float, float] = (0.95, 0.95),
        shampoo_beta: float | None = None,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        maximize: bool = False,
        rank: int = 256,
        oversampling: int = 8,
        power_iterations: int = 1,
        precondition_frequency: int = 10,
        max_precond_dim: int = 8192,
        pool: Literal["mean", "sum"] = "mean",
        alpha: float = 1.0,
        gamma: float = 1.01,
        limiter_scope: Literal["C", "residual", "total", "off"] = "C",
        transport: Literal["published", "exact"] = "published",
        clip: bool = False,
        stagger: bool = False,
        seed: int = 0,
        rules: Rules | None = None,
        on_nonfinite: Literal["skip", "raise"] = "skip",
    ) -> None:
        defaults = dict(
            lr=lr,
            betas=betas,
            shampoo_beta=shampoo_beta,
            eps=eps,
            weight_decay=weight_decay,
            maximize=maximize,
            rank=rank,
            oversampling=oversampling,
            power_iterations=power_iterations,
            precondition_frequency=precondition_frequency,
            max_precond_dim=max_precond_dim,
            pool=pool,
            alpha=alpha,
            gamma=gamma,
            limiter_scope=limiter_scope,
            transport=transport,
            clip=clip,
            stagger=stagger,
            seed=seed,
            rules=rules,
            on_nonfinite=on_nonfinite,
        )
        super().__init__(params, defaults)

    def _new_state(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        rule = self._rule(parameter, group)
        if not self._is_low_rank(parameter, group):
            return new_adam_state(parameter, rule)
        return new_low_rank_state(
            rule.shape, group["rank"], dtype=compute_dtype(parameter), device=parameter.device
        )

    def _fallback_steps(self, work: Sequence[Work]) -> None:
        self._adam_steps(work)

    def _load(self, bucket: Sequence[Work]) -> list[dict[str, Tensor]]:
        return [
            item.state
            if item.found_inf is None
            else {key: tensor.clone() for key, tensor in item.state.items() if key != "step"}
            for item in bucket
        ]

    def _settle_bases(self, item: Work, state: dict[str, Tensor]) -> None:
        """Nothing to do: what was loaded is the state itself, or its copy, stored at the end."""

    def _store(self, bucket: Sequence[Work], states: Sequence[dict[str, Tensor]]) -> None:
        for item, state in zip(bucket, states, strict=True):
            if item.found_inf is not None:
                keep(item, state)
