"""QClean: Clean with bases and moments in 8-bit blocks."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .._schema import compute_dtype
from .._schema.quantize import QUANTIZABLE, block_count
from ..ops import (
    adam8_foreach_,
    dequantize_dynamic8_foreach,
    dequantize_int8_foreach,
    quantize_dynamic8_foreach,
    quantize_int8_foreach,
)
from ._buckets import Work, buckets, keep
from ._checks import require_choices
from ._low_rank import LowRankOptimizer, new_low_rank_state
from ._routing import Rules, shaped
from ._updates import new_adam_state

_BLOCK_SIZE = 256
_SMALLEST = 4096
"""Elements from which the moments of a matrix given to Adam are kept in blocks."""

_MOMENTS = ("exp_avg", "exp_avg_A", "exp_avg_B")
_BASES = ("U_L", "U_R")
_KEPT_AS_THEY_ARE = (
    "eigvals_L",
    "eigvals_R",
    "exp_avg_sq_A",
    "exp_avg_sq_B",
    "exp_avg_sq_C",
    "limited_norm",
)
_KINDS = {"exp_avg": 0, "exp_avg_A": 1, "exp_avg_B": 2, "U_L": 3, "U_R": 4, "adam": 5}
"""Numbers of the streams of random bits that a parameter has; every parameter has eight of its own."""


class QClean(LowRankOptimizer):
    """Clean with bases and moments in 8-bit blocks: about a byte for each float of `Clean`'s state.

    Bases U_L, U_R and the first moments are kept on affine grids, moments rounded stochastically, and the second
    moment of the main part on the dynamic map; pooled moments and eigenvalues stay in float32. Each step restores
    what it needs, moves by the float32 values, and rounds at the end; bases are rounded only where they are
    renewed, and used as rounded from that very step on.

    Matrices that `Clean` leaves to Adam (embeddings, heads) have both of Adam's moments in blocks as well, from
    4096 elements on; vectors, scalars and smaller ones do not.

    Args:
        params: As in `Clean`, like all that is not listed here.
        lr: Learning rate.
        betas: As in `Clean`.
        shampoo_beta: As in `Clean`.
        eps: As in `Clean`.
        weight_decay: As in `Clean`.
        maximize: As in `Clean`.
        rank: As in `Clean`.
        oversampling: As in `Clean`.
        power_iterations: As in `Clean`.
        precondition_frequency: As in `Clean`.
        max_precond_dim: As in `Clean`.
        pool: As in `Clean`.
        alpha: As in `Clean`.
        gamma: As in `Clean`.
        limiter_scope: As in `Clean`.
        transport: As in `Clean`.
        clip: As in `Clean`, but on: a second moment far below the largest of its block is kept as 0, while its
            first moment may be rounded up to a whole step, and such an entry would fly away.
        u_round: How bases are rounded. They are rounded once a refresh, so that no bias adds up: "nearest" has 0.7
            times the error of the published "stochastic", and does not depend on a parameter's number.
        orthonormalize: "bjorck" takes restored bases U to 1.5U - 0.5 U UᵀU, which makes their columns orthonormal
            to about 1e-4 instead of 1e-2.
        stagger: As in `Clean`.
        seed: Of the random sketches and of stochastic rounding.
        rules: As in `Clean`.
        on_nonfinite: As in `Clean`.

    Raises:
        ValueError: A hyper-parameter is out of range.

    Numerics:
        State of an m×n matrix: 2(m + n)r + 2r² bytes, 5 bytes more for each 256 entries (4 for those of the
        second moment), and 4r + 2 floats. Blocks are those of `quantize_int8` and `quantize_dynamic8`; float64
        parameters are updated in float64 from moments that went through float32, and their Adam moments are not
        quantized. Parts below 2 % of the gradient's norm count as zero: bases in blocks are off by up to 1 %,
        and Adam would blow up what they leave out to unit size.

    Source:
        The Clean paper, appendix B. Reference: python_ref/optim/qclean.py.
    """

    _noise = 2e-2
    """Twice the relative error of bases in blocks, which A, B and C hold of a gradient inside the bases."""

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
        clip: bool = True,
        u_round: Literal["nearest", "stochastic"] = "nearest",
        orthonormalize: Literal["none", "bjorck"] = "none",
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
            u_round=u_round,
            orthonormalize=orthonormalize,
            stagger=stagger,
            seed=seed,
            rules=rules,
            on_nonfinite=on_nonfinite,
        )
        super().__init__(params, defaults)

    def _validate(self, group: dict[str, Any]) -> None:
        super()._validate(group)
        require_choices("QClean", group, u_round=("stochastic", "nearest"), orthonormalize=("none", "bjorck"))

    def _new_state(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        rule, device = self._rule(parameter, group), parameter.device
        if self._is_low_rank(parameter, group):
            state = new_low_rank_state(
                rule.shape, group["rank"], dtype=compute_dtype(parameter), device=device
            )
            for key in (*_MOMENTS, *_BASES):
                state |= _no_affine(key, state.pop(key).shape, device)
            return state | _no_dynamic("exp_avg_sq", state.pop("exp_avg_sq").shape, device)
        if self._in_blocks(parameter):
            affine = _no_affine("exp_avg", rule.shape, device)
            return affine | _no_dynamic("exp_avg_sq", rule.shape, device)
        return new_adam_state(parameter, rule)

    def _in_blocks(self, parameter: Tensor) -> bool:
        """Tell whether Adam's moments of a parameter are kept in blocks; so are those of its shards."""
        whole = self._exchange.original(parameter)
        return whole.ndim > 1 and whole.numel() >= _SMALLEST and whole.dtype in QUANTIZABLE

    def _granule(self, parameter: Tensor, group: dict[str, Any]) -> int | None:
        granule = super()._granule(parameter, group)
        return _BLOCK_SIZE if granule and self._in_blocks(parameter) else granule

    def _fallback_steps(self, work: Sequence[Work]) -> None:
        self._adam_steps([item for item in work if "exp_avg" in item.state])
        in_blocks = [item for item in work if "exp_avg" not in item.state]
        for bucket in buckets(in_blocks, lambda item: item.parameter):
            self._adam8_steps(bucket)

    def _adam8_steps(self, bucket: Sequence[Work]) -> None:
        group, states = bucket[0].group, [item.state for item in bucket]
        moments = ((*_affine(state, "exp_avg"), *_dynamic(state, "exp_avg_sq")) for state in states)
        with self._matrices(bucket) as parameters:
            gradients = [shaped(item.grad, W.shape) for item, W in zip(bucket, parameters, strict=True)]
            adam8_foreach_(
                parameters,
                gradients,
                *map(list, zip(*moments, strict=True)),
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                eps=group["eps"],
                weight_decay=self._decay(group),
                step=[state["step"] for state in states],
                seed=group["seed"],
                stream=[self._stream(item.parameter, "adam") for item in bucket],
                offset=[self._exchange.offset(item.parameter) for item in bucket],
                block_size=_BLOCK_SIZE,
                clip=None if group["clip"] else torch.inf,
                maximize=group["maximize"],
                found_inf=[item.found_inf for item in bucket],
            )

    def _load(self, bucket: Sequence[Work]) -> list[dict[str, Tensor]]:
        keys, dtype = (*_MOMENTS, *_BASES), compute_dtype(bucket[0].parameter)
        affine = zip(*(_affine(item.state, key) for item in bucket for key in keys), strict=True)
        dynamic = zip(*(_dynamic(item.state, "exp_avg_sq") for item in bucket), strict=True)
        restored = iter(dequantize_int8_foreach(*map(list, affine), block_size=_BLOCK_SIZE))
        squares = dequantize_dynamic8_foreach(*map(list, dynamic), block_size=_BLOCK_SIZE)
        loaded = []
        for item, square in zip(bucket, squares, strict=True):
            state = {key: item.state[key] for key in _KEPT_AS_THEY_ARE}
            if item.found_inf is not None:
                state = {key: tensor.clone() for key, tensor in state.items()}
            state |= {key: next(restored).to(dtype) for key in keys}
            state["exp_avg_sq"] = square.to(dtype)
            _orthonormalize(state, item.group)
            loaded.append(state)
        return loaded

    def _settle_bases(self, item: Work, state: dict[str, Tensor]) -> None:
        self._keep_affine([item], [state], _BASES, rounding=item.group["u_round"])
        for key in _BASES:
            (restored,) = dequantize_int8_foreach(
                *([tensor] for tensor in _affine(item.state, key)), block_size=_BLOCK_SIZE
            )
            state[key] = restored.to(state[key].dtype)
        _orthonormalize(state, item.group)

    def _store(self, bucket: Sequence[Work], states: Sequence[dict[str, Tensor]]) -> None:
        kept = quantize_dynamic8_foreach(
            [state["exp_avg_sq"].float() for state in states], block_size=_BLOCK_SIZE
        )
        self._keep_affine(bucket, states, _MOMENTS, rounding="stochastic")
        for item, state, blocks in zip(bucket, states, kept, strict=True):
            keep(item, {key: state[key] for key in _KEPT_AS_THEY_ARE})
            keep(item, {f"exp_avg_sq_{name}": tensor for name, tensor in blocks._asdict().items()})

    def _keep_affine(
        self,
        bucket: Sequence[Work],
        states: Sequence[dict[str, Tensor]],
        keys: tuple[str, ...],
        *,
        rounding: Literal["stochastic", "nearest"],
    ) -> None:
        """Quantize entries of loaded states into the states of the parameters, which are of one group."""
        kept = quantize_int8_foreach(
            [state[key].float() for state in states for key in keys],
            block_size=_BLOCK_SIZE,
            rounding=rounding,
            seed=bucket[0].group["seed"],
            step=[item.state["step"] for item in bucket for _ in keys],
            stream=[self._stream(item.parameter, key) for item in bucket for key in keys],
        )
        places = ((item, key) for item in bucket for key in keys)
        for (item, key), blocks in zip(places, kept, strict=True):
            keep(item, {f"{key}_{name}": tensor for name, tensor in blocks._asdict().items()})

    def _stream(self, parameter: Tensor, kind: str) -> int:
        return 8 * self._position(parameter) + _KINDS[kind]


def _no_affine(key: str, shape: tuple[int, ...], device: torch.device) -> dict[str, Tensor]:
    """Return the state entries of zeros in affine blocks."""
    codes = torch.zeros(shape, dtype=torch.uint8, device=device)
    blocks = block_count(codes.numel(), _BLOCK_SIZE)
    scales = torch.zeros(blocks, dtype=torch.float32, device=device)
    return {
        f"{key}_codes": codes,
        f"{key}_scales": scales,
        f"{key}_zero_points": torch.zeros_like(scales, dtype=torch.uint8),
    }


def _no_dynamic(key: str, shape: tuple[int, ...], device: torch.device) -> dict[str, Tensor]:
    """Return the state entries of zeros in blocks on the dynamic map."""
    affine = _no_affine(key, shape, device)
    return {f"{key}_codes": affine[f"{key}_codes"], f"{key}_absmax": affine[f"{key}_scales"]}


def _affine(state: dict[str, Any], key: str) -> tuple[Tensor, Tensor, Tensor]:
    return state[f"{key}_codes"], state[f"{key}_scales"], state[f"{key}_zero_points"]


def _dynamic(state: dict[str, Any], key: str) -> tuple[Tensor, Tensor]:
    return state[f"{key}_codes"], state[f"{key}_absmax"]


def _orthonormalize(state: dict[str, Tensor], group: dict[str, Any]) -> None:
    """Take one Björck step on the bases of a loaded state, if that is wanted."""
    if group["orthonormalize"] == "bjorck":
        for key in _BASES:
            U = state[key]
            state[key] = 1.5 * U - 0.5 * U @ (U.mT @ U)
