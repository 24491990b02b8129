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
    integer = isinstance(block_size, int | torch.SymInt)
    if not integer or block_size % 8 or not smallest <= block_size <= largest:
        raise ValueError(
            f"{op}: block_size is {block_size!r}, it must be a multiple of 8 from {smallest} to {largest}"
        )


def require_random(op: str, step: Tensor | None, stream: int, offset: int, device: torch.device) -> None:
    """Require what names a tensor's random numbers."""
    require.require_integer(op, 0, 2**32 - 1, stream=stream)
    require.require_integer(op, 0, 2**63 - 1, offset=offset)
    require.require_scalar(op, step=step)
    require.require_device(op, device, step=step)


def _require_blocks(op: str, like: Tensor, block_size: int, codes: Tensor, **per_block: Tensor) -> None:
    """Require codes of a tensor's shape, and one number for each block; zero points are bytes as well."""
    require_block_size(op, block_size)
    require.require_shape(op, like.shape, "like the values", codes=codes)
    require.require_dtype(op, torch.uint8, "for codes", codes=codes)
    blocks = block_count(codes.numel(), block_size)
    for name, tensor in per_block.items():
        dtype = torch.uint8 if name.endswith("zero_points") else torch.float32
        require.require_dtype(op, dtype, "for each block", **{name: tensor})
        require.require_shape(op, (blocks,), f"for blocks of {block_size}", **{name: tensor})
    require.require_device(op, like.device, codes=codes, **per_block)


def require_affine_blocks(
    op: str, like: Tensor, block_size: int, name: str, codes: Tensor, scales: Tensor, zero_points: Tensor
) -> None:
    """Require the affine blocks of a tensor."""
    per_block = {f"{name}_scales": scales, f"{name}_zero_points": zero_points}
    _require_blocks(op, like, block_size, codes, **per_block)


def require_dynamic_blocks(
    op: str, like: Tensor, block_size: int, name: str, codes: Tensor, absmax: Tensor
) -> None:
    """Require the blocks of a tensor on the dynamic map."""
    _require_blocks(op, like, block_size, codes, **{f"{name}_absmax": absmax})


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
    _require_blocks(op, codes, block_size, codes, scales=scales, zero_points=zero_points)


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
    _require_blocks(op, codes, block_size, codes, absmax=absmax)


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
    _require_blocks(op, x, block_size, codes, scales=scales, zero_points=zero_points)
    require_random(op, step, stream, offset, x.device)


def _check_ema_sq_dynamic8_(
    codes: Tensor, absmax: Tensor, x: Tensor, *, beta: float, block_size: int = 256
) -> None:
    op = "ema_sq_dynamic8_"
    require.require_dtype_among(op, QUANTIZABLE, x=x)
    require.require_fraction(op, beta=beta)
    _require_blocks(op, x, block_size, codes, absmax=absmax)


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
    require_affine_blocks(
        op, param, block_size, "exp_avg", exp_avg_codes, exp_avg_scales, exp_avg_zero_points
    )
    require_dynamic_blocks(op, param, block_size, "exp_avg_sq", exp_avg_sq_codes, exp_avg_sq_absmax)
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

declare_foreach(quantize_int8, "x", "stream", "offset")
declare_foreach(dequantize_int8, "codes", "scales", "zero_points")
declare_foreach(quantize_dynamic8, "x")
declare_foreach(dequantize_dynamic8, "codes", "absmax")
declare_foreach(ema_int8_, "codes", "scales", "zero_points", "x", "stream", "offset")
declare_foreach(ema_sq_dynamic8_, "codes", "absmax", "x")
declare_foreach(
    adam8_,
    *("param", "grad", "exp_avg_codes", "exp_avg_scales", "exp_avg_zero_points"),
    *("exp_avg_sq_codes", "exp_avg_sq_absmax", "stream", "offset"),
)
declare_foreach(stochastic_round_bf16, "x", "stream", "offset")
