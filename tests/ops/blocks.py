"""Inputs and comparisons of the operators on 8-bit blocks."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.guards import bits
from tests.ops.launch import CPU

VARIANTS = ("composite", *CPU)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SIZES = (0, 1, 7, 255, 256, 257, 65_537, 1_000_003)
BLOCK_SIZES = (32, 64, 128, 256, 512, 1024, 2048)
ODD_BLOCK_SIZES = (8, 24, 40, 264, 4096)
LARGE = 2**23

GOLDEN = json.loads((Path(__file__).parents[1] / "vectors" / "golden.json").read_text())

TINY = 2.0**-126
INF, NAN = float("inf"), float("nan")

AWKWARD_BLOCKS = {
    "zeros": [0.0, -0.0, 0.0],
    "constant": [3.0, 3.0, 3.0],
    "negative constant": [-2.0, -2.0],
    "positive": [10.0, 10.5, 11.0],
    "large and small": [1e30, 1e-8, 0.0, -1e-8],
    "overflowing range": [3e38, -3e38],
    "largest": [3.4028234e38, 0.0, 1.0],
    "subnormal": [1e-39, -1e-39, 1e-45],
    "smallest normal": [TINY, -TINY, TINY * 255, 1e-39],
    "subnormal beside normal": [1e-36, -1e-36, 3e-39, -1e-39, 1e-45],
    "reciprocal near overflow": [254 * TINY, -1e-38],
    "NaN": [1.0, NAN, 2.0],
    "Inf": [1.0, INF],
    "-Inf": [-INF, 1.0],
    "Inf and NaN": [INF, NAN, -INF],
}


def values(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return normal numbers whose scale changes by decades from place to place."""
    generator = torch.Generator().manual_seed(seed)
    numel = torch.Size(shape).numel()
    decades = torch.rand(numel // 200 + 1, generator=generator).mul(8).sub(6).repeat_interleave(200)
    return (torch.randn(numel, generator=generator) * 10 ** decades[:numel]).reshape(shape).to(dtype)


def awkward_tensor(block_size: int = 256) -> Tensor:
    """Return every awkward block, each filled up with its first value and followed by a plain block."""
    plain = torch.linspace(-1, 2, block_size)
    rows = []
    for block in AWKWARD_BLOCKS.values():
        filled = torch.tensor(block + block[:1] * (block_size - len(block)), dtype=torch.float32)
        rows += [filled, plain]
    return torch.cat(rows)


def assert_same(results: Iterable[Tensor], oracle: Iterable[Tensor]) -> None:
    """Require the oracle's bits; one NaN is as good as another."""
    for ours, theirs in zip(results, oracle, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        different = bits(ours.contiguous()) != bits(theirs.contiguous())
        if ours.dtype.is_floating_point:
            different &= ~(ours.isnan() & theirs.isnan())
        assert not different.any(), (
            f"{int(different.sum())} of {ours.numel()} elements differ, from {different.nonzero()[0].tolist()}: "
            f"{ours[different][:4].tolist()}, not {theirs[different][:4].tolist()}"
        )


def assert_golden(quantize_int8: Callable[..., Iterable[Tensor]]) -> None:
    """Require the codes, scale and zero point of the golden numbers."""
    golden = GOLDEN["quantize_int8"]
    x = torch.tensor([int(word, 16) for word in golden["x_float32_hex"]]).to(torch.int32).view(torch.float32)
    key: dict[str, Any] = {name: golden[name] for name in ("seed", "step", "stream")}
    for rounding in ("nearest", "stochastic"):
        codes, scales, zero_points = quantize_int8(x, block_size=golden["group"], rounding=rounding, **key)
        assert codes.tolist() == golden[rounding]
        assert f"{scales.view(torch.int32).item():08x}" == golden["scale_hex"]
        assert zero_points.tolist() == [golden["zero_point"]]
