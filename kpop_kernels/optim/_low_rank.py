"""What Clean and QClean have in common: low-rank bases, moments of the four parts, and the direction."""

import math
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .._schema import compute_dtype
from .._schema.quantize import adam_bound
from ..ops import Parts, block_lift_, block_lift_foreach_, block_project, block_project_foreach, nystrom_eigh
from ._base import MatrixOptimizer
from ._buckets import Work, buckets
from ._checks import require_choices, require_counts, require_fractions, require_nonnegative, require_positive
from ._routing import as_matrices
from ._updates import bias_correction, learning_rate

SIDES: tuple[tuple[Literal["left", "right"], str, str], ...] = (
    ("left", "U_L", "eigvals_L"),
    ("right", "U_R", "eigvals_R"),
)
"""Each side of a matrix with the state keys of its basis and its eigenvalues."""

Directions = tuple[
    Sequence[Tensor | None], Sequence[Tensor | None], Sequence[Tensor | None], Sequence[Tensor]
]
"""Main, A, B and C of what each parameter descends along; None is zero."""


class LowRankOptimizer(MatrixOptimizer):
    """Base of the optimizers that keep the leading eigenvectors of both Kronecker factors.

    A matrix either has both bases or, if a side is too long or a rule says so, is trained by Adam. Subclasses say
    how state is kept: `_load` returns it in floating point, `_settle_bases` and `_store` keep what became of it.
    """

    _shortest_side = 1
    _noise = 1e-5
    """Norm of a part, relative to the gradient's, below which it is the rounding error of a part that is zero."""

    def _validate(self, group: dict[str, Any]) -> None:
        name = type(self).__name__
        require_positive(
            name, **{key: group[key] for key in ("rank", "precondition_frequency", "max_precond_dim")}
        )
        require_counts(name, **{key: group[key] for key in ("oversampling", "power_iterations", "seed")})
        require_nonnegative(name, alpha=group["alpha"])
        if not group["gamma"] >= 1.0:
            raise ValueError(f"{name}: gamma is {group['gamma']}, it must be at least 1")
        if group["shampoo_beta"] is not None:
            require_fractions(name, shampoo_beta=group["shampoo_beta"])
        require_choices(
            name,
            group,
            pool=("mean", "sum"),
            limiter_scope=("C", "residual", "total", "off"),
            transport=("published", "exact"),
        )

    def _explanation(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, str]:
        columns = super()._explanation(parameter, group)
        return columns if columns["treated"] == "both sides" else columns | {"treated": "Adam"}

    def _granule(self, parameter: Tensor, group: dict[str, Any]) -> int | None:
        return None if self._is_low_rank(parameter, group) else 1

    def _cost(self, parameter: Tensor, group: dict[str, Any]) -> float:
        """Return the operations of a step: four products with rank r, and sketches of r + p columns a period."""
        *batch, m, n = self._rule(parameter, group).shape
        if not self._is_low_rank(parameter, group):
            return math.prod(batch) * 20.0 * m * n
        r = min(group["rank"], m, n)
        sketch, products = r + group["oversampling"], 2 + group["power_iterations"]
        renewal = 2 * products * (4 * m * n * sketch + 4 * (m + n) * sketch**2)
        return math.prod(batch) * (40 * m * n + 16 * m * n * r + renewal / group["precondition_frequency"])

    def _is_low_rank(self, parameter: Tensor, group: dict[str, Any]) -> bool:
        rule = self._rule(parameter, group)
        return rule.left and rule.right

    def _update(self, work: Sequence[Work]) -> None:
        low_rank = [item for item in work if "eigvals_L" in item.state]
        for bucket in buckets(low_rank, lambda item: item.parameter):
            self._low_rank_steps(bucket)
        self._fallback_steps([item for item in work if "eigvals_L" not in item.state])

    def _low_rank_steps(self, bucket: list[Work]) -> None:
        """Move parameters of one group; their states are loaded and stored together."""
        states = self._load(bucket)
        gradients = [self._gradient(item) for item in bucket]
        for item, state, G in zip(bucket, states, gradients, strict=True):
            self._renew(item, state, G)
        group, steps = bucket[0].group, [item.state["step"] for item in bucket]
        parts = directions(states, gradients, group, steps, noise=self._noise)
        self._store(bucket, states)
        lr = learning_rate(group)
        with self._matrices(bucket) as matrices:
            block_lift_foreach_(
                matrices,
                *parts,
                *_bases(states),
                alpha=-lr * group["alpha"],
                beta=1 - lr * self._decay(group),
                found_inf=[item.found_inf for item in bucket],
            )

    def _gradient(self, item: Work) -> Tensor:
        """Return a gradient as matrices in the dtype of the state, contiguous; negated to maximize."""
        parameter, grad, _, group, _ = item
        G = as_matrices(grad, self._rule(parameter, group)).to(compute_dtype(parameter)).contiguous()
        return -G if group["maximize"] else G

    def _renew(self, item: Work, state: dict[str, Tensor], G: Tensor) -> None:
        """Renew bases and carry moments over where that is due."""
        renewal, group = self._renewal(item, self._periodic(item, phase=1)), item.group
        if renewal is None:
            return
        old = state["U_L"], state["U_R"]
        generator = sketch_generator(group["seed"], step=renewal)
        for failed in renew_bases(state, G, group, generator, cold=renewal == 1):
            self._count_failures(failed)
        self._settle_bases(item, state)
        if renewal > 1:
            carry_moments(state, *old, exact=group["transport"] == "exact", noise=self._noise)

    @abstractmethod
    def _fallback_steps(self, work: Sequence[Work]) -> None:
        """Move parameters that have no bases by Adam."""

    @abstractmethod
    def _load(self, bucket: Sequence[Work]) -> list[dict[str, Tensor]]:
        """Return the states of matrices in floating point, under the keys of `new_low_rank_state`.

        They are overwritten; where ``found_inf`` is not None they must be copies.
        """

    @abstractmethod
    def _settle_bases(self, item: Work, state: dict[str, Tensor]) -> None:
        """Keep new bases, and put into the loaded state what will be loaded from now on."""

    @abstractmethod
    def _store(self, bucket: Sequence[Work], states: Sequence[dict[str, Tensor]]) -> None:
        """Keep the moments of loaded states, unless ``found_inf`` is not None and not zero."""


def sketch_generator(seed: int, *, step: int) -> torch.Generator:
    """Return the generator of the sketches of a step.

    It lives on the CPU and is a function of its arguments alone, so that a resumed run draws what the
    uninterrupted one would have drawn, on any device. Parameters share draws: what matters is that a sketch
    does not depend on the gradient it meets.
    """
    words = b"".join(word.to_bytes(8, "little") for word in (seed, step))
    return torch.Generator().manual_seed(zlib.crc32(words))


def new_low_rank_state(
    shape: tuple[int, ...], rank: int, *, dtype: torch.dtype, device: torch.device
) -> dict[str, Any]:
    """Return the state of a matrix before its first step.

    Args:
        shape: (..., m, n).
        rank: Number of eigenvectors wanted; at most min(m, n) are kept.
        dtype: Dtype of the state.
        device: Device of the state.
    """
    *batch, m, n = shape
    r = min(rank, m, n)
    shapes = {
        "U_L": (m, r),
        "U_R": (n, r),
        "eigvals_L": (r,),
        "eigvals_R": (r,),
        "exp_avg": (r, r),
        "exp_avg_A": (m, r),
        "exp_avg_B": (r, n),
        "exp_avg_sq": (r, r),
        "exp_avg_sq_A": (1, r),
        "exp_avg_sq_B": (r, 1),
        "exp_avg_sq_C": (1, 1),
        "limited_norm": (1, 1),
    }
    return {key: torch.zeros(*batch, *dims, dtype=dtype, device=device) for key, dims in shapes.items()}


def renew_bases(
    state: dict[str, Tensor], G: Tensor, group: dict[str, Any], generator: torch.Generator, *, cold: bool
) -> list[Tensor]:
    """Renew both bases of a state with a gradient; return for each side which could not be renewed."""
    failed = []
    for side, basis, eigvals in SIDES:
        pairs = nystrom_eigh(
            G,
            None if cold else state[basis],
            None if cold else state[eigvals],
            rank=state[basis].shape[-1],
            oversampling=group["oversampling"],
            power_iterations=group["power_iterations"],
            beta=group["betas"][1] if group["shampoo_beta"] is None else group["shampoo_beta"],
            side=side,
            generator=generator,
        )
        state[basis] = pairs.U.contiguous()
        state[eigvals].copy_(pairs.eigvals)
        failed.append(pairs.failed)
    return failed


def carry_moments(
    state: dict[str, Tensor], old_L: Tensor, old_R: Tensor, *, exact: bool, noise: float
) -> None:
    """Carry moments from old bases into those of a state.

    First moments of main, A and B are rotated part by part, which drops what moves from one part to another, or,
    exactly, lifted and projected again, which drops only what moves into C. The pooled second moments follow by
    squared overlaps; that of main, which has no exact image, stays.
    """
    U_L, U_R = state["U_L"], state["U_R"]
    R_L, R_R = U_L.mT @ old_L, old_R.mT @ U_R
    M, M_A, M_B = (state[key] for key in ("exp_avg", "exp_avg_A", "exp_avg_B"))
    if exact:
        whole = block_lift_(M.new_zeros(*M_A.shape[:-1], M_B.shape[-1]), M, M_A, M_B, None, old_L, old_R)
        M, M_A, M_B, _ = _without_noise(block_project(whole, U_L, U_R), whole, noise)
    else:
        M = R_L @ M @ R_R
        M_A = (M_A - U_L @ (U_L.mT @ M_A)) @ R_R
        M_B = R_L @ (M_B - (M_B @ U_R) @ U_R.mT)
    state["exp_avg"], state["exp_avg_A"], state["exp_avg_B"] = M, M_A, M_B
    state["exp_avg_sq_A"].copy_(state["exp_avg_sq_A"] @ R_R.square())
    state["exp_avg_sq_B"].copy_(R_L.square() @ state["exp_avg_sq_B"])


def directions(
    states: Sequence[dict[str, Tensor]],
    gradients: Sequence[Tensor],
    group: dict[str, Any],
    steps: Sequence[Tensor],
    *,
    noise: float,
) -> Directions:
    """Update moments with gradients and return the parts of what the parameters of a group descend along."""
    bases, nothing = _bases(states), [None] * len(states)
    projected = block_project_foreach(gradients, *bases)
    parts = [_without_noise(part, G, noise) for part, G in zip(projected, gradients, strict=True)]
    _average(states, parts, *group["betas"])
    rows = zip(states, parts, steps, strict=True)
    normalized = [_normalized_parts(state, part.C, group, step) for state, part, step in rows]
    mains, As, Bs, Cs = (list(column) for column in zip(*normalized, strict=True))
    scope = group["limiter_scope"]
    if scope == "off":
        return mains, As, Bs, Cs
    if scope != "C":
        block_lift_foreach_(Cs, mains if scope == "total" else nothing, As, Bs, nothing, *bases)
        mains, As, Bs = nothing if scope == "total" else mains, nothing, nothing
    norms = [state["limited_norm"] for state in states]
    return mains, As, Bs, [_limited(C, norm, group["gamma"]) for C, norm in zip(Cs, norms, strict=True)]


def _bases(states: Sequence[dict[str, Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    return [state["U_L"] for state in states], [state["U_R"] for state in states]


def _without_noise(parts: Parts, G: Tensor, noise: float) -> Parts:
    """Return parts in which what can only be rounding error is zero: Adam would blow it up to unit size.

    A complete basis leaves no complement; what an inexact one seems to leave is its own error.
    """
    r, (m, n) = parts.main.shape[-1], G.shape[-2:]
    floor = noise * torch.linalg.matrix_norm(G, keepdim=True)
    complete = {"A": r == m, "B": r == n, "C": r in (m, n)}
    cleaned = {
        name: torch.where(
            torch.linalg.matrix_norm(part, keepdim=True) <= (torch.inf if complete[name] else floor),
            0.0,
            part,
        )
        for name, part in parts._asdict().items()
        if name != "main"
    }
    return parts._replace(**cleaned)


def _average(states: Sequence[dict[str, Tensor]], parts: Sequence[Parts], beta1: float, beta2: float) -> None:
    """Average parts into first moments and their squares into second ones; those of A, B and C are pooled."""
    firsts, means, seconds, squares = [], [], [], []
    for state, (main, A, B, C) in zip(states, parts, strict=True):
        firsts += [state["exp_avg"], state["exp_avg_A"], state["exp_avg_B"]]
        means += [main, A, B]
        seconds += [state[f"exp_avg_sq{part}"] for part in ("", "_A", "_B", "_C")]
        squares += [main.square(), A.square().mean(-2, keepdim=True)]
        squares += [B.square().mean(-1, keepdim=True), C.square().mean((-2, -1), keepdim=True)]
    torch._foreach_lerp_(firsts, means, 1 - beta1)
    torch._foreach_lerp_(seconds, squares, 1 - beta2)


def _normalized_parts(state: dict[str, Tensor], C: Tensor, group: dict[str, Any], step: Tensor) -> Parts:
    """Return the parts of the direction: bias-corrected first moments (C itself) over roots of second ones."""
    (beta1, beta2), eps = group["betas"], group["eps"]
    m, n = C.shape[-2:]
    bound = adam_bound(beta1, beta2) if group["clip"] else math.inf
    correction2 = bias_correction(beta2, step)

    def normalized(M: Tensor, beta: float, key: str, pooled: int, bound: float) -> Tensor:
        entries = pooled if group["pool"] == "sum" else 1
        v = entries * state[key] / correction2
        corrected = M / bias_correction(beta, step)
        return clipped(corrected / (v.sqrt() + eps), bound * math.sqrt(pooled / entries))

    return Parts(
        normalized(state["exp_avg"], beta1, "exp_avg_sq", 1, bound),
        normalized(state["exp_avg_A"], beta1, "exp_avg_sq_A", m, bound),
        normalized(state["exp_avg_B"], beta1, "exp_avg_sq_B", n, bound),
        normalized(C, 0.0, "exp_avg_sq_C", m * n, math.inf),
    )


def clipped(N: Tensor, bound: float) -> Tensor:
    """Return entries limited to ±bound, what they could not exceed if both moments were exact."""
    return N if bound == math.inf else N.clamp_(-bound, bound)


def _limited(X: Tensor, norm: Tensor, gamma: float) -> Tensor:
    """Return X with a norm at most gamma times the last one, which is updated; 0 stands for none yet."""
    current = torch.linalg.matrix_norm(X, keepdim=True)
    excess = torch.where(norm > 0, current / (gamma * norm), 1.0).clamp_min(1.0)
    norm.copy_(current / excess)
    return X / excess
