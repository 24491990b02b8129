"""Blocks of 8 bits: the affine grid with stochastic rounding, the dynamic map, and the moments kept in them.

A tensor is flattened in C order and cut into blocks of ``block_size`` elements, the last one perhaps short.
All arithmetic is float32, round to nearest even, one rounding per written operation, in the order written
here: the results are promised bit for bit.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .philox import random16

f32 = np.float32
TINY = f32(2.0**-126)
NAN = f32(np.nan)


class Affine(NamedTuple):
    """Codes of x's shape, one scale and one zero point a block: x ≈ (codes - zero_points)·scales."""

    codes: Tensor
    scales: Tensor
    zero_points: Tensor


class Dynamic(NamedTuple):
    """Codes of x's shape, one absolute maximum a block: x ≈ map[codes]·absmax."""

    codes: Tensor
    absmax: Tensor


class Adam8(NamedTuple):
    """What one step of Adam with 8-bit moments leaves behind."""

    param: Tensor
    exp_avg: Affine
    exp_avg_sq: Dynamic


def quantize_int8(
    x: Tensor,
    *,
    block_size: int = 256,
    rounding: str = "stochastic",
    seed: int = 0,
    step: int = 0,
    stream: int = 0,
    offset: int = 0,
    mode: str = "unbiased",
) -> Affine:
    """Return the blocks of x on grids s·(q - z), q = 0 … 255, that hold 0 exactly.

    Without poison: lo = min(0, x), hi = max(0, x), s = (hi - lo)/254, z = ⌈-lo/s⌉, so that no value rounds
    beyond 0 … 255 and stochastic rounding is unbiased at the extremes too. Mode "paper" is the published
    s = (hi - lo)/255, z = ⌊-lo/s + ½⌋, which clips them.
    """
    blocks = _blocks(_flush(_values(x)), block_size)
    with np.errstate(all="ignore"):
        scale, inverse, zero_point = affine_grid(blocks, mode)
        y = blocks * inverse[:, None]
        if rounding == "stochastic":
            random = random16(x.numel(), seed=seed, step=step, stream=stream, offset=offset)
            k = round_stochastic(y, _blocks(random, block_size))
        else:
            k = np.floor(y + f32(0.5)).astype(np.int64)
    codes = np.clip(k + zero_point[:, None], 0, 255).astype(np.uint8)
    codes[~(scale > 0)] = 0
    return Affine(_like(codes, x), torch.from_numpy(scale), torch.from_numpy(zero_point.astype(np.uint8)))


def affine_grid(blocks: np.ndarray, mode: str = "unbiased") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scale, its reciprocal and zero point of each row.

    Rows with NaN, Inf or an overflowing range get scale NaN; ranges too small for a normal scale get 0. Both
    have reciprocal 0 and zero point 0.
    """
    lo, hi = np.minimum(blocks, 0).min(1), np.maximum(blocks, 0).max(1)
    scale = (hi - lo) / f32(254 if mode == "unbiased" else 255)
    poisoned = ~np.isfinite(blocks).all(1) | ~np.isfinite(scale)
    empty = ~poisoned & (scale < TINY)
    inverse = np.where(poisoned | empty, f32(0), f32(1) / scale)
    ratio = _flush(np.where(poisoned, f32(0), -lo) * inverse)
    zero_point = np.ceil(ratio) if mode == "unbiased" else np.floor(ratio + f32(0.5))
    scale = np.where(poisoned, NAN, np.where(empty, f32(0), scale))
    return scale.astype(f32), inverse.astype(f32), np.minimum(zero_point, 255).astype(np.int64)


def round_stochastic(y: np.ndarray, random: np.ndarray) -> np.ndarray:
    """Return ⌊y⌋, plus one where the 16 random bits are below 2¹⁶ times the fraction.

    y - ⌊y⌋ of a tiny negative y rounds to 1, whose threshold 65536 is above all random numbers.
    """
    floor = np.floor(y)
    threshold = ((y - floor) * f32(65536)).astype(np.int64)
    return floor.astype(np.int64) + (random < threshold)


def dequantize_int8(
    codes: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    *,
    block_size: int = 256,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return (codes - zero_points)·scales: the difference in integers, one rounding."""
    steps = codes.reshape(-1).to(torch.int32) - _each(zero_points, codes, block_size).to(torch.int32)
    return (steps.to(torch.float32) * _each(scales, codes, block_size)).reshape(codes.shape).to(dtype)


@cache
def dynamic_map(signed: bool) -> np.ndarray:
    """Return the 256 values of the dynamic map, ascending.

    Decade i = 0 … 6 is 10^(i-6)·[0.1, 1], cut into 2^i (signed) or 2^(i+1) equal parts whose centres are
    values; 0 and 1 are added, and with a sign the negatives of all but 1. The borders of the parts have one
    rounding each, as a fused multiply-add gives them: start + step·j in the lower half, stop - step·(n-j) in
    the upper one.
    """
    values = []
    for decade in range(7):
        parts = 2**decade if signed else 2 ** (decade + 1)
        start, stop = np.float64(f32(0.1)), np.float64(1)
        step = np.float64((f32(1) - f32(0.1)) / f32(parts))
        j = np.arange(parts + 1)
        borders = np.where(2 * j < parts, start + step * j, stop - step * (parts - j)).astype(f32)
        values.append(f32(10.0 ** (decade - 6)) * ((borders[:-1] + borders[1:]) * f32(0.5)))
    positive = np.concatenate(values)
    negative = -positive[::-1] if signed else positive[:0]
    return np.concatenate([negative, [f32(0)], positive, [f32(1)]]).astype(f32)


def quantize_dynamic8(x: Tensor, *, block_size: int = 256, signed: bool = False) -> Dynamic:
    """Return the nearest value of the map for x/absmax, the lower one where two are equally near.

    Blocks with NaN or Inf get absmax NaN; these and blocks of zeros hold the code of 0. A reciprocal of the
    largest absmax would be subnormal: such blocks are scaled by 2⁻⁸ first, which is exact.
    """
    blocks = _blocks(_flush(_values(x)), block_size)
    absmax = np.abs(blocks).max(1)
    poisoned = ~np.isfinite(absmax)
    empty = ~poisoned & (absmax < TINY)
    prescale = np.where(absmax >= f32(2.0**126), f32(2.0**-8), f32(1))
    with np.errstate(all="ignore"):
        inverse = np.where(poisoned | empty, f32(0), f32(1) / (absmax * prescale))
        y = (blocks * prescale[:, None]) * inverse[:, None]
    values = dynamic_map(signed)
    midpoints = (values[:-1] + values[1:]) * f32(0.5)
    codes = np.searchsorted(midpoints, y.reshape(-1), side="left").astype(np.uint8).reshape(y.shape)
    codes[poisoned | empty] = np.flatnonzero(values == 0)[0]
    absmax = np.where(poisoned, NAN, np.where(empty, f32(0), absmax)).astype(f32)
    return Dynamic(_like(codes, x), torch.from_numpy(absmax))


def dequantize_dynamic8(
    codes: Tensor,
    absmax: Tensor,
    *,
    block_size: int = 256,
    signed: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return map[codes]·absmax with one rounding; results below 2⁻¹²⁶ are 0."""
    values = torch.from_numpy(dynamic_map(signed))[codes.reshape(-1).to(torch.int64)]
    product = values * _each(absmax, codes, block_size)
    return torch.from_numpy(_flush(product.numpy())).reshape(codes.shape).to(dtype)


def ema_int8(
    m: Affine,
    x: Tensor,
    *,
    beta: float,
    seed: int,
    step: int,
    stream: int,
    offset: int = 0,
    block_size: int = 256,
) -> tuple[Tensor, Affine]:
    """Return β·m + (1-β)·x, and its blocks rounded stochastically."""
    mean = _ema(dequantize_int8(*m, block_size=block_size), beta, _part(beta) * _values(x))
    mean = mean.reshape(x.shape)
    blocks = quantize_int8(mean, block_size=block_size, seed=seed, step=step, stream=stream, offset=offset)
    return mean, blocks


def ema_sq_dynamic8(v: Dynamic, x: Tensor, *, beta: float, block_size: int = 256) -> tuple[Tensor, Dynamic]:
    """Return β·v + ((1-β)·x)·x, and its blocks on the unsigned dynamic map."""
    values = _values(x)
    with np.errstate(all="ignore"):
        square = (_part(beta) * values) * values
    mean = _ema(dequantize_dynamic8(*v, block_size=block_size), beta, square).reshape(x.shape)
    return mean, quantize_dynamic8(mean, block_size=block_size)


def adam8(
    param: Tensor,
    grad: Tensor,
    exp_avg: Affine,
    exp_avg_sq: Dynamic,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
    seed: int,
    stream: int,
    offset: int = 0,
    block_size: int = 256,
    clip: float | None = None,
    maximize: bool = False,
) -> Adam8:
    """Return parameter and moments after one step of Adam.

    m and v are the fused averages above; N = (m·c₁) / (√(v·c₂) + eps) with c = 1/(1 - βᵗ), limited to ±clip;
    W = (1 - lr·weight_decay)·W - lr·N. The update uses the float32 moments, not their blocks.
    """
    g = -grad if maximize else grad
    m, new_exp_avg = ema_int8(
        exp_avg,
        g,
        beta=beta1,
        seed=seed,
        step=step,
        stream=stream,
        offset=offset,
        block_size=block_size,
    )
    v, new_exp_avg_sq = ema_sq_dynamic8(exp_avg_sq, g, beta=beta2, block_size=block_size)
    correction1, correction2 = (f32(1 / (1 - beta**step)) for beta in (beta1, beta2))
    limit = f32(adam_bound(beta1, beta2) if clip is None else clip)
    with np.errstate(all="ignore"):
        denominator = np.sqrt(v.numpy() * correction2) + f32(eps)
        N = np.clip((m.numpy() * correction1) / denominator, -limit, limit)
        W = param.to(torch.float32).numpy() * f32(1 - lr * weight_decay) - f32(lr) * N
    return Adam8(torch.from_numpy(W).to(param.dtype), new_exp_avg, new_exp_avg_sq)


def adam_bound(beta1: float, beta2: float) -> float:
    """Return what |m̂/√v̂| cannot exceed in exact arithmetic (Cauchy–Schwarz); Inf when β₁² ≥ β₂."""
    if beta1**2 >= beta2:
        return float("inf") if beta1 > 0 else (1 - beta2) ** -0.5
    return float((1 - beta1) / ((1 - beta2) * (1 - beta1**2 / beta2)) ** 0.5)


def stochastic_round_bf16(x: Tensor, *, seed: int, step: int, stream: int, offset: int = 0) -> Tensor:
    """Return x in bfloat16: 16 random bits are added to the bits that are cut off.

    NaN stays NaN, Inf stays Inf, and finite values beyond the largest bfloat16 become it, not Inf.
    """
    bits = _values(x).view(np.uint32)
    random = random16(x.numel(), seed=seed, step=step, stream=stream, offset=offset)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    rounded = (bits + random) >> np.uint32(16)
    cut = bits >> np.uint32(16)
    rounded = np.where(magnitude > 0x7F7F0000, cut, rounded)
    rounded = np.where(magnitude > 0x7F800000, cut | np.uint32(0x0040), rounded)
    return torch.from_numpy(rounded.astype(np.uint16).view(np.int16)).view(torch.bfloat16).reshape(x.shape)


def _ema(old: Tensor, beta: float, new: np.ndarray) -> Tensor:
    with np.errstate(all="ignore"):
        return torch.from_numpy(f32(beta) * old.reshape(-1).numpy() + new)


def _part(beta: float) -> np.float32:
    """Return 1 - β, subtracted in float64."""
    return f32(1 - beta)


def _values(x: Tensor) -> np.ndarray:
    """Return x flattened, in float32."""
    return x.detach().reshape(-1).to(torch.float32).numpy()


def _flush(values: np.ndarray) -> np.ndarray:
    """Return the values with subnormals as 0, so that hardware which flushes them agrees."""
    return np.where(np.abs(values) < TINY, f32(0), values)


def _blocks(values: np.ndarray, block_size: int) -> np.ndarray:
    """Return the values as rows of one block each; zeros, which change no block's range, fill the last."""
    count = -(-values.size // block_size)
    padded = np.zeros(count * block_size, values.dtype)
    padded[: values.size] = values
    return padded.reshape(count, block_size)


def _each(per_block: Tensor, codes: Tensor, block_size: int) -> Tensor:
    """Return a block's number for each of its elements."""
    return per_block.repeat_interleave(block_size)[: codes.numel()]


def _like(codes: np.ndarray, x: Tensor) -> Tensor:
    return torch.from_numpy(codes.reshape(-1)[: x.numel()].copy()).reshape(x.shape)
