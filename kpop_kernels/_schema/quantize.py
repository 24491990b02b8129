"""Operators on blocks of 8 bits: the affine grid, the dynamic map, and the moments kept in them."""

import math

import torch
from torch import Tensor

from . import checks as require
from .foreach import declare_foreach
from .operator import Operator, Result, declare

QUANTIZABLE = (torch.float32, torch.bfloat16, torch.float16)
BLOCK_SIZES = (8, 4096)
MODES = ("unbiased", "paper")
ROUNDINGS = ("stochastic", "nearest")


def block_count(numel: int, block_size: int) -> int:
    """Return the number of blocks of a tensor; the last one may be short."""
    return (numel + block_size - 1) // block_size


def adam_bound(beta1: float, beta2: float) -> float:
    """Return what |m̂ / √v̂| cannot exceed in exact arithmetic, by Cauchy–Schwarz; Inf when β₁² ≥ β₂ > 0."""
    if beta1 == 0:
        return 1 / math.sqrt(1 - beta2)
    if beta1**2 >= beta2:
        return math.inf
    return (1 - beta1) / math.sqrt((1 - beta2) * (1 - beta1**2 / beta2))


def require_block_size(op: str, block_size: int) -> None:
    """Require a multiple of 8, which share a call of the generator, up to what every backend holds on chip."""
    smallest, largest = BLOCK_SIZES
    integer = isinstance(block_size, require.INTEGERS)
    if not integer or block_size % 8 or not smallest <= block_size <= largest:
        raise ValueError(
            f"{op}: block_size is {block_size!r}, it must be a multiple of 8 from {smallest} to {largest}"
        )


def require_place(op: str, *, stream: int, offset: int) -> None:
    """Require what names a tensor's place in the random numbers of a step."""
    require.require_integer(op, 0, 2**32 - 1, stream=stream)
    require.require_integer(op, 0, 2**63 - 1, offset=offset)


def require_random(op: str, step: Tensor | None, stream: int, offset: int, device: torch.device) -> None:
    """Require what names a tensor's random numbers."""
    require_place(op, stream=stream, offset=offset)
    require.require_scalar(op, step=step)
    require.require_device(op, device, step=step)


def require_affine(
    op: str, like: Tensor, block_size: int, codes: Tensor, scales: Tensor, zero_points: Tensor, kept: str = ""
) -> None:
    """Require what `quantize_int8` gives for a tensor; ``kept`` is the prefix of the arguments' names."""
    per_block = {kept + "scales": scales, kept + "zero_points": zero_points}
    _require_blocks(op, like, block_size, {kept + "codes": codes}, per_block)
    require.require_dtype(op, torch.float32, "for each block", **{kept + "scales": scales})
    require.require_dtype(op, torch.uint8, "for each block", **{kept + "zero_points": zero_points})


def require_dynamic(
    op: str, like: Tensor, block_size: int, codes: Tensor, absmax: Tensor, kept: str = ""
) -> None:
    """Require what `quantize_dynamic8` gives for a tensor; ``kept`` is the prefix of the arguments' names."""
    per_block = {kept + "absmax": absmax}
    _require_blocks(op, like, block_size, {kept + "codes": codes}, per_block)
    require.require_dtype(op, torch.float32, "for each block", **per_block)


def _require_blocks(
    op: str, like: Tensor, block_size: int, codes: dict[str, Tensor], per_block: dict[str, Tensor]
) -> None:
    require_block_size(op, block_size)
    require.require_shape(op, like.shape, "like the values", **codes)
    require.require_dtype(op, torch.uint8, "for codes", **codes)
    blocks = (block_count(like.numel(), block_size),)
    require.require_shape(op, blocks, f"for blocks of {block_size}", **per_block)
    require.require_device(op, like.device, **codes, **per_block)


def _check_quantize_int8(
    x: Tensor,
    *,
    block_size: int = 256,
    rounding: str = "stochastic",
    seed: int = 0,
    step: Tensor | None = None,
    stream: int = 0,
    offset: int = 0,
    mode: str = "unbiased",
) -> None:
    op = "quantize_int8"
    require.require_dtype_among(op, QUANTIZABLE, x=x)
    require_block_size(op, block_size)
    require.require_choice(op, "rounding", rounding, ROUNDINGS)
    require.require_choice(op, "mode", mode, MODES)
    require_random(op, step, stream, offset, x.device)


def _check_dequantize_int8(
    codes: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    *,
    block_size: int = 256,
    dtype: torch.dtype = torch.float32,
) -> None:
    op = "dequantize_int8"
    require.require_choice(op, "dtype", dtype, QUANTIZABLE)
    require_affine(op, codes, block_size, codes, scales, zero_points)


def _check_quantize_dynamic8(x: Tensor, *, block_size: int = 256, signed: bool = False) -> None:
    require.require_dtype_among("quantize_dynamic8", QUANTIZABLE, x=x)
    require_block_size("quantize_dynamic8", block_size)


def _check_dequantize_dynamic8(
    codes: Tensor,
    absmax: Tensor,
    *,
    block_size: int = 256,
    signed: bool = False,
    dtype: torch.dtype = torch.float32,
) -> None:
    op = "dequantize_dynamic8"
    require.require_choice(op, "dtype", dtype, QUANTIZABLE)
    require_dynamic(op, codes, block_size, codes, absmax)


def _check_ema_int8_(
    codes: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    x: Tensor,
    *,
    beta: float,
    seed: int,
    step: Tensor,
    stream: int,
    offset: int = 0,
    block_size: int = 256,
) -> None:
    op = "ema_int8_"
    require.require_dtype_among(op, QUANTIZABLE, x=x)
    require.require_fraction(op, beta=beta)
    require_affine(op, x, block_size, codes, scales, zero_points)
    require_random(op, step, stream, offset, x.device)


def _check_ema_sq_dynamic8_(
    codes: Tensor, absmax: Tensor, x: Tensor, *, beta: float, block_size: int = 256
) -> None:
    op = "ema_sq_dynamic8_"
    require.require_dtype_among(op, QUANTIZABLE, x=x)
    require.require_fraction(op, beta=beta)
    require_dynamic(op, x, block_size, codes, absmax)


def _check_adam8_(
    param: Tensor,
    grad: Tensor,
    exp_avg_codes: Tensor,
    exp_avg_scales: Tensor,
    exp_avg_zero_points: Tensor,
    exp_avg_sq_codes: Tensor,
    exp_avg_sq_absmax: Tensor,
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: Tensor,
    seed: int,
    stream: int,
    offset: int = 0,
    block_size: int = 256,
    clip: float | None = None,
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> None:
    op = "adam8_"
    require.require_dtype_among(op, QUANTIZABLE, param=param, grad=grad)
    require.require_shape(op, param.shape, "like param", grad=grad)
    require.require_device(op, param.device, grad=grad, lr=lr, found_inf=found_inf)
    require.require_scalar(op, lr=lr, found_inf=found_inf)
    require.require_fraction(op, beta1=beta1, beta2=beta2)
    require.require_not_negative(op, eps=eps, weight_decay=weight_decay)
    require.require_not_negative(op, clip=0.0 if clip is None else clip)
    exp_avg = (exp_avg_codes, exp_avg_scales, exp_avg_zero_points)
    require_affine(op, param, block_size, *exp_avg, kept="exp_avg_")
    require_dynamic(op, param, block_size, exp_avg_sq_codes, exp_avg_sq_absmax, kept="exp_avg_sq_")
    require_random(op, step, stream, offset, param.device)


def _check_stochastic_round_bf16(x: Tensor, *, seed: int, step: Tensor, stream: int, offset: int = 0) -> None:
    op = "stochastic_round_bf16"
    require.require_dtype(op, torch.float32, "to be rounded to bfloat16", x=x)
    require_random(op, step, stream, offset, x.device)


def _affine_results(x: Tensor, *, block_size: int = 256, **_: object) -> tuple[Result, ...]:
    blocks = (block_count(x.numel(), block_size),)
    return Result(x.shape, torch.uint8), Result(blocks, torch.float32), Result(blocks, torch.uint8)


def _dynamic_results(x: Tensor, *, block_size: int = 256, signed: bool = False) -> tuple[Result, ...]:
    return Result(x.shape, torch.uint8), Result((block_count(x.numel(), block_size),), torch.float32)


def _restored_results(
    codes: Tensor, *_: Tensor, dtype: torch.dtype = torch.float32, **__: object
) -> tuple[Result, ...]:
    return (Result(codes.shape, dtype),)


RANDOM = "int seed, Tensor step, int stream, int offset=0"

quantize_int8 = declare(
    Operator(
        "quantize_int8",
        'Tensor x, *, int block_size=256, str rounding="stochastic", int seed=0, Tensor? step=None, '
        'int stream=0, int offset=0, str mode="unbiased"',
        _check_quantize_int8,
        results=_affine_results,
        result_count=3,
    )
)

dequantize_int8 = declare(
    Operator(
        "dequantize_int8",
        "Tensor codes, Tensor scales, Tensor zero_points, *, int block_size=256, ScalarType dtype=float32",
        _check_dequantize_int8,
        results=_restored_results,
        decided_by="scales",
    )
)

quantize_dynamic8 = declare(
    Operator(
        "quantize_dynamic8",
        "Tensor x, *, int block_size=256, bool signed=False",
        _check_quantize_dynamic8,
        results=_dynamic_results,
        result_count=2,
    )
)

dequantize_dynamic8 = declare(
    Operator(
        "dequantize_dynamic8",
        "Tensor codes, Tensor absmax, *, int block_size=256, bool signed=False, ScalarType dtype=float32",
        _check_dequantize_dynamic8,
        results=_restored_results,
        decided_by="absmax",
    )
)

ema_int8_ = declare(
    Operator(
        "ema_int8_",
        "Tensor(a!) codes, Tensor(b!) scales, Tensor(c!) zero_points, Tensor x, *, float beta, "
        f"{RANDOM}, int block_size=256",
        _check_ema_int8_,
        results=lambda codes, *_, **__: (Result(codes.shape, torch.float32),),
        decided_by="x",
    )
)

ema_sq_dynamic8_ = declare(
    Operator(
        "ema_sq_dynamic8_",
        "Tensor(a!) codes, Tensor(b!) absmax, Tensor x, *, float beta, int block_size=256",
        _check_ema_sq_dynamic8_,
        results=lambda codes, *_, **__: (Result(codes.shape, torch.float32),),
        decided_by="x",
    )
)

adam8_ = declare(
    Operator(
        "adam8_",
        "Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg_codes, Tensor(c!) exp_avg_scales, "
        "Tensor(d!) exp_avg_zero_points, Tensor(e!) exp_avg_sq_codes, Tensor(f!) exp_avg_sq_absmax, *, "
        f"Tensor lr, float beta1, float beta2, float eps, float weight_decay, {RANDOM}, "
        "int block_size=256, float? clip=None, bool maximize=False, Tensor? found_inf=None",
        _check_adam8_,
    )
)

stochastic_round_bf16 = declare(
    Operator(
        "stochastic_round_bf16",
        f"Tensor x, *, {RANDOM}",
        _check_stochastic_round_bf16,
        results=lambda x, **_: (Result(x.shape, torch.bfloat16),),
    )
)

declare_foreach(quantize_int8, "x", "step", "stream", "offset", check_numbers=require_place)
declare_foreach(dequantize_int8, "codes", "scales", "zero_points")
declare_foreach(quantize_dynamic8, "x")
declare_foreach(dequantize_dynamic8, "codes", "absmax")
declare_foreach(
    ema_int8_, "codes", "scales", "zero_points", "x", "step", "stream", "offset", check_numbers=require_place
)
declare_foreach(ema_sq_dynamic8_, "codes", "absmax", "x")
declare_foreach(
    adam8_,
    *("param", "grad", "exp_avg_codes", "exp_avg_scales", "exp_avg_zero_points"),
    *("exp_avg_sq_codes", "exp_avg_sq_absmax", "step", "stream", "offset", "found_inf"),
    check_numbers=require_place,
)
declare_foreach(stochastic_round_bf16, "x", "step", "stream", "offset", check_numbers=require_place)
