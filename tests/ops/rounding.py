"""What stochastic rounding promises of its random numbers, for every operator that rounds so, on any backend.

A backend is a function from an operator's name to the operator. Those that average are called so that what they
round is their input: with beta = 0.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from python_ref import philox
from python_ref import quantize as oracle
from tests.ops.blocks import assert_same, values

Backend = Callable[[str], Callable[..., Any]]

KEY = {"seed": 0x9E3779B97F4A7C15, "step": 2**31 + 5, "stream": 5}
MANY = 2**22
"""Elements among which each of four kinds meets all 65 536 random numbers under `KEY`."""


def _quantize(backend: Backend, x: Tensor, **key: Any) -> oracle.Affine:
    return oracle.Affine(*backend("quantize_int8")(x, **key))


def _average(backend: Backend, x: Tensor, **key: Any) -> oracle.Affine:
    blocks = _zeros(x, key.get("block_size", 256))
    backend("ema_int8_")(*blocks, x, beta=0.0, **key)
    return blocks


def _adam(backend: Backend, x: Tensor, **key: Any) -> oracle.Affine:
    blocks = _zeros(x, key.get("block_size", 256))
    squares = [blocks.codes.clone(), blocks.scales.clone()]
    scalars = {"lr": 0.0, "beta1": 0.0, "beta2": 0.9, "eps": 1e-8, "weight_decay": 0.0}
    backend("adam8_")(torch.zeros_like(x), x, *blocks, *squares, **scalars, **key)
    return blocks


def _zeros(x: Tensor, block_size: int) -> oracle.Affine:
    count = -(-x.numel() // block_size)
    return oracle.Affine(
        torch.zeros(x.shape, dtype=torch.uint8), torch.zeros(count), torch.zeros(count, dtype=torch.uint8)
    )


TO_INT8 = {"quantize_int8": _quantize, "ema_int8_": _average, "adam8_": _adam}
"""Operators that round to the affine grid."""

ROUNDING = (*TO_INT8, "stochastic_round_bf16")
"""Every operator that rounds at random."""


def _int8_steps(backend: Backend, op: str, x: Tensor, **key: Any) -> tuple[Tensor, Tensor]:
    """Return whole steps of the grid from 0 to each rounded value, and the step of each element."""
    block_size = key.get("block_size", 256)
    blocks = TO_INT8[op](backend, x, **key)
    zero_points, scales = (
        field.repeat_interleave(block_size)[: x.numel()] for field in (blocks.zero_points, blocks.scales)
    )
    return blocks.codes.int() - zero_points.int(), scales


def _grid_cells() -> tuple[Tensor, Tensor, Tensor]:
    """Blocks of scale 1: the lower extreme, the upper one, a third of a step, and just below 0."""
    y = torch.tensor([-57.296875, 196.703125, 0.3, -(2.0**-20)])
    floors = y.floor().int()
    return y, floors, ((y - floors) * 65536).int()


def _bf16_cells() -> tuple[Tensor, Tensor, Tensor]:
    """Values of both signs between two bfloat16 numbers, one of them subnormal; the grid is the upper half."""
    y = torch.tensor([1 + 2.0**-10, -1.3, 3.1e-39, 123456.789])
    bits = y.view(torch.int32)
    return y, bits >> 16, bits & 0xFFFF


@lru_cache(maxsize=1)
def _random16() -> Tensor:
    return torch.from_numpy(philox.random16(MANY, **KEY).astype(np.int32))


def assert_every_random_number_rounds_as_its_threshold_says(backend: Backend, op: str) -> None:
    """Require of all 65 536 random numbers that as many round up as the threshold says: a proof, no estimate.

    So the mean over them is the value, to the 2⁻¹⁶ of a step that the threshold is cut by, at the extremes of a
    block too. On the grid those below it go up, in bfloat16, to which they are added, those that carry.
    """
    y, floors, thresholds = _bf16_cells() if op == "stochastic_round_bf16" else _grid_cells()
    x = y.repeat(MANY // 4)
    if op == "stochastic_round_bf16":
        steps = backend(op)(x, **KEY).view(torch.int16).int()
    else:
        steps, scales = _int8_steps(backend, op, x, **KEY)
        assert (scales == 1).all()
    ups, random = (steps.reshape(-1, 4) - floors).T, _random16().reshape(-1, 4).T
    for up, r, threshold in zip(ups, random, thresholds, strict=True):
        assert r.unique().numel() == 65536, "not every random number occurs"
        carries = r + threshold >= 65536
        assert torch.equal(up, (carries if op == "stochastic_round_bf16" else r < threshold).int())


def assert_means_are_the_values(backend: Backend, op: str) -> None:
    """Require of the mean over many roundings of a random block to be within 4 σ of it, at its extremes too."""
    draws = 4096
    block = torch.randn(256, generator=torch.Generator().manual_seed(4))
    x = block.repeat(draws)
    if op == "stochastic_round_bf16":
        rounded = backend(op)(x, **KEY).double()
        step = torch.ldexp(torch.ones(256), block.frexp().exponent - 8).double()
    else:
        steps, scales = _int8_steps(backend, op, x, **KEY)
        assert scales.unique().numel() == 1
        rounded, step = steps.double() * scales.double(), scales[0].double()
    error = (rounded.reshape(draws, 256).mean(0) - block.double()) / step
    four_sigma = 4 * 0.5 / draws**0.5
    assert (error.abs() <= four_sigma + 2.0**-16).all()
    assert (rounded.reshape(draws, 256).std(0) > 0).sum() >= 250, "nothing was rounded at random"


def assert_keys_round_independently(backend: Backend, op: str) -> None:
    """Require χ² tests to see no connection between the roundings of two seeds, two steps or two streams."""
    numel = 2**18
    if op == "stochastic_round_bf16":
        x = torch.full((numel,), 1 + 2.0**-8)
    else:
        x = torch.tensor([-127.0, 127.0] + [0.5] * 254).repeat(numel // 256)

    def ups(**change: int) -> Tensor:
        key = KEY | change
        if op == "stochastic_round_bf16":
            return backend(op)(x, **key).view(torch.int16) & 1
        return _int8_steps(backend, op, x, **key)[0].reshape(-1, 256)[:, 2:].reshape(-1)

    first = ups()
    for change in ({"seed": 5}, {"seed": KEY["seed"] + 2**63}, {"step": 6}, {"stream": 6}, {"offset": 2**35}):
        table = np.histogram2d(first.numpy(), ups(**change).numpy(), bins=2)[0]
        assert table.min() > 0, f"{change}: not both directions occur together"
        assert stats.chi2_contingency(table).pvalue > 1e-4, f"{change}: the roundings are connected"
    neighbours = np.histogram2d(first[:-1].numpy(), first[1:].numpy(), bins=2)[0]
    assert stats.chi2_contingency(neighbours).pvalue > 1e-4, "the roundings of neighbours are connected"


def assert_shards_round_like_the_whole(backend: Backend, op: str, start: int = 2**35 - 64 * 7) -> None:
    """Require of a tensor cut in 2, 3 and 5 shards at borders of blocks to get the codes it has in one piece."""
    x = values(8, 64 * 90 + 3)

    def run(part: Tensor, offset: int) -> tuple[Tensor, ...]:
        if op == "stochastic_round_bf16":
            return (backend(op)(part, offset=offset, **KEY),)
        return tuple(TO_INT8[op](backend, part, block_size=64, offset=offset, **KEY))

    whole = run(x, start)
    for shards in (2, 3, 5):
        cuts = [64 * (90 * i // shards) for i in range(shards)] + [x.numel()]
        parts = [run(x[a:b], start + a) for a, b in pairwise(cuts)]
        assert_same([torch.cat(pieces) for pieces in zip(*parts, strict=True)], whole)


PROMISES = {
    "every random number": assert_every_random_number_rounds_as_its_threshold_says,
    "means": assert_means_are_the_values,
    "independent keys": assert_keys_round_independently,
    "shards": assert_shards_round_like_the_whole,
}
"""What to require of a backend and the name of an operator."""
