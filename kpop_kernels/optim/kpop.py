"""KPOP: Adam in the eigenbasis of Kronecker-factored curvature."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from ._base import MatrixOptimizer
from ._buckets import Work, buckets
from ._capture import Approximation, Capture, SideSum
from ._checks import require_choices, require_fractions, require_positive
from ._factors import SIDES, accumulate, accumulate_gradients
from ._refresh import Renewal, refresh_together
from ._routing import Rule, Rules, shaped
from ._updates import new_rotated_state

_MODES: dict[str, dict[str, Any]] = {
    "default": {"betas": (0.9, 0.95), "factor_norm": "trace"},
    "seed": {"betas": (0.9, 0.999), "factor_norm": "rows"},
}
"""What each mode sets where nothing else is given."""


class KPOP(MatrixOptimizer):
    """Adam in the eigenbasis of Kronecker-factored curvature (K-FAC eigenbasis + Adam).

    For a layer y = W x with inputs X (rows, n), output gradients dY (rows, m) and G = dYᵀX, a step is

        R ← αR + (1-α) XᵀX     L ← αL + (1-α) dYᵀdY          each divided by its trace
        Q_L, Q_R ← eigenvectors of L, R                       on steps 1, f, 2f, ...
        G' = Q_Lᵀ G Q_R;  N = Adam(G');  W ← (1 - lr·weight_decay) W - lr·Q_L N Q_Rᵀ

    and when the basis changes, Adam's moments are carried into the new one (`rebase_moments_`).

    Call `attach` once so that X and dY are seen. Parameters whose layer is not seen use G Gᵀ and GᵀG instead;
    vectors and scalars (biases, norms) use the same Adam without rotation. `explain` says which is which.

    Args:
        params: Parameters, groups or named parameters, as torch.optim takes them.
        lr: Learning rate.
        betas: Decays of Adam's moments; (0.9, 0.95), in "seed" mode (0.9, 0.999).
        eps: Added to Adam's denominator.
        weight_decay: Decoupled weight decay.
        maximize: Ascend instead.
        factor_beta: Decay α of the factors.
        precondition_frequency: Steps f between two eigendecompositions.
        max_precond_dim: Longest side that gets a factor; longer ones stay as they are.
        factor_norm: "trace" divides each new second moment by its trace, which makes the step independent of the
            scale of the loss; "rows" divides by the number of rows, as the article does. Default by mode.
        method: "eigh", or "qr": bases after the first come from those before by one step of orthogonal iteration.
            It is cheaper and trains as well: on the digits autoencoder (three seeds, lr 3e-3) to a squared
            error of 0.298 against 0.293.
        mode: "seed" is the article to the letter: factors start at the identity, eigendecompositions on steps 1
            to 10 and every 100th, eigenvalues rising, moments not carried along. It trains worse. A group with a
            mode of its own has that mode's betas and factor_norm unless it gives its own.
        stagger: Let parameter i decompose on steps that are i modulo f, not all on the same; the first step
            decomposes for all. No effect in "seed" mode.
        rules: Name patterns and the sides that parameters of such names may have factors for: "both", "left",
            "right" or "adam" for none. The first match counts.
        on_nonfinite: "skip" leaves a parameter whose gradient holds NaN or Inf as it is, "raise" raises
            RuntimeError before anything changes.

    Raises:
        ValueError: A hyper-parameter is out of range.

    Numerics:
        Factors, bases and moments are float32 (float64 for float64 parameters) whatever the parameter's dtype.
        State of an m×n matrix: 2mn + 2m² + 2n² floats.

    Source:
        The KPOP article; eigenbasis: George et al., Fast Approximate Natural Gradient Descent in a
        Kronecker-factored Eigenbasis (2018); moment transport: the Clean paper, eq. 15. Reference:
        python_ref/optim/kpop.py.
    """

    _capture: Capture | None
    _seen: set[int]

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        *,
        betas: tuple[float, float] | None = None,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        maximize: bool = False,
        factor_beta: float = 0.95,
        precondition_frequency: int = 10,
        max_precond_dim: int = 8192,
        factor_norm: Literal["trace", "rows"] | None = None,
        method: Literal["eigh", "qr"] = "eigh",
        mode: Literal["default", "seed"] = "default",
        stagger: bool = False,
        rules: Rules | None = None,
        on_nonfinite: Literal["skip", "raise"] = "skip",
    ) -> None:
        of_mode = _MODES.get(mode, _MODES["default"])
        defaults = dict(
            lr=lr,
            betas=betas or of_mode["betas"],
            eps=eps,
            weight_decay=weight_decay,
            maximize=maximize,
            factor_beta=factor_beta,
            precondition_frequency=precondition_frequency,
            max_precond_dim=max_precond_dim,
            factor_norm=factor_norm or of_mode["factor_norm"],
            method=method,
            mode=mode,
            stagger=stagger,
            rules=rules,
            on_nonfinite=on_nonfinite,
        )
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its hyper-parameters are checked before anything changes."""
        if isinstance(param_group, dict):
            param_group = _MODES.get(param_group.get("mode", ""), {}) | param_group
        super().add_param_group(param_group)

    def attach(
        self,
        model: nn.Module,
        *,
        approximation: Approximation = "expand",
        center: bool = False,
        enabled: bool = True,
    ) -> None:
        """Watch a model's Linear, Conv2d and Embedding layers in training mode; replaces an earlier attachment.

        Args:
            model: The model whose parameters are optimized.
            approximation: For sequence inputs (samples, ..., features): "expand" counts every position as a row,
                for losses on every position; "reduce" averages inputs and sums output gradients over positions
                first, for losses on pooled outputs.
            center: Use covariances instead of second moments: the mean row is subtracted.
            enabled: Whether passes count from now on; `capture` switches it for a block.
        """
        self.detach()
        groups = {p: group for group in self.param_groups for p in group["params"]}

        def wanted(parameter: Tensor) -> tuple[bool, bool]:
            if parameter not in groups:
                return False, False
            rule = self._rule(parameter, groups[parameter])
            return rule.left, rule.right

        self._capture = Capture(model, wanted, approximation=approximation, center=center, enabled=enabled)
        self._places.clear()

    def detach(self) -> None:
        """Stop watching the model; parameters fall back to factors of their gradients."""
        if self._capture is not None:
            self._capture.remove()
        self._capture = None
        self._places.clear()

    @contextmanager
    def capture(self, enabled: bool = True) -> Iterator[None]:
        """Let the passes inside a block count, or (False) not count, towards the factors.

        Raises:
            RuntimeError: No model is attached.
        """
        if self._capture is None:
            raise RuntimeError("KPOP.capture: no model is attached, call attach(model) first")
        with self._capture.switched(enabled):
            yield

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset gradients, and the sums gathered along with them."""
        super().zero_grad(set_to_none)
        if self._capture is not None:
            self._capture.reset()

    def _validate(self, group: dict[str, Any]) -> None:
        require_fractions("KPOP", factor_beta=group["factor_beta"])
        require_positive(
            "KPOP",
            precondition_frequency=group["precondition_frequency"],
            max_precond_dim=group["max_precond_dim"],
        )
        require_choices(
            "KPOP", group, factor_norm=("trace", "rows"), method=("eigh", "qr"), mode=("default", "seed")
        )

    def _new_state(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return new_rotated_state(
            parameter, self._rule(parameter, group), identity_factors=group["mode"] == "seed"
        )

    def _prepare(self, parameters: Sequence[Tensor]) -> None:
        if self._capture is not None:
            self._exchange.sum_statistics(self._capture, parameters)

    def _update(self, work: Sequence[Work]) -> None:
        unseen = [item for item in work if not self._fed_by_hooks(item)]
        for bucket in buckets(unseen, lambda item: item.state["exp_avg"]):
            group = bucket[0].group
            gradients = [shaped(item.grad, item.state["exp_avg"].shape) for item in bucket]
            normalize = group["factor_norm"] == "trace"
            accumulate_gradients(bucket, gradients, beta=group["factor_beta"], normalize=normalize)
        self._refresh(work)
        self._adam_steps(work)

    def _refresh(self, work: Sequence[Work]) -> None:
        due = []
        for item in work:
            seed = item.group["mode"] == "seed"
            step = self._renewal(item, _seed_schedule if seed else self._periodic(item))
            if step is not None:
                method: Literal["eigh", "qr"] = "eigh" if seed or step == 1 else item.group["method"]
                renewal = Renewal(step, "none" if seed else "both", method, descending=not seed)
                due.append((renewal, item.state))
        for failed in refresh_together(due):
            self._count_failures(failed)

    def _fed_by_hooks(self, item: Work) -> bool:
        """Feed the factors with what the hooks saw; return False if no hook ever saw this parameter."""
        parameter, _, state, group, found_inf = item
        beta, normalize = group["factor_beta"], group["factor_norm"] == "trace"
        watched = self._exchange.original(parameter)
        sums = None if self._capture is None else self._capture.take(watched)
        if sums is None:
            return id(watched) in self._seen
        self._seen.add(id(watched))
        for side, factor, _ in SIDES:
            sides: dict[str, SideSum] = getattr(sums, side)
            if factor in state and sides:
                scatter, rows = _combined(list(sides.values()))
                counted = None if normalize else rows
                accumulate(state[factor], scatter, beta=beta, rows=counted, found_inf=found_inf)
        return True

    def _sites(self, parameter: Tensor) -> list[str]:
        return [] if self._capture is None else self._capture.sites(parameter)

    def _given_name(self, parameter: Tensor) -> str | None:
        return None if self._capture is None else self._capture.names.get(parameter)

    def _explanation(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, str]:
        rule = self._rule(parameter, group)
        source, note = self._source(parameter, rule)
        why = "; ".join(filter(None, (rule.why, note)))
        return {"treated": rule.method, "factors from": source, "why": why}

    def _source(self, parameter: Tensor, rule: Rule) -> tuple[str, str]:
        """Say where a parameter's factors come from, and why not from elsewhere."""
        if not (rule.left or rule.right):
            return "-", ""
        if self._capture is None:
            return "gradients", "no model is attached"
        if sites := self._capture.sites(parameter):
            if id(parameter) in self._counts and id(parameter) not in self._seen:
                return "gradients", "its layer has not run by itself so far"
            return " + ".join(dict.fromkeys(sites)), ""
        refusal = self._capture.refused.get(parameter, "no Linear, Conv2d or Embedding uses it as its weight")
        return "gradients", refusal

    def _skip(self, parameter: Tensor) -> None:
        super()._skip(parameter)
        if self._capture is not None:
            self._capture.take(parameter)

    def _reset_transients(self) -> None:
        super()._reset_transients()
        self._capture = None
        self._seen = set()


def _seed_schedule(step: int) -> bool:
    return step <= 10 or step % 100 == 0


def _combined(sums: list[SideSum]) -> tuple[Tensor, int]:
    """Return scatter and rows over all sites; those of different kinds have different units and count alike."""
    if len(sums) == 1:
        return sums[0].scatter(), sums[0].rows
    scatters = [side.scatter() for side in sums]
    tiny = torch.finfo(scatters[0].dtype).tiny
    return torch.stack([scatter / scatter.trace().clamp_min(tiny) for scatter in scatters]).sum(0), len(sums)
