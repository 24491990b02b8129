"""8-bit blocks, made and restored: each element is read once and written once, in four bytes and one.

The operators of this package are judged bit by bit; rivals round in their own ways and are judged by what their
codes restore to.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import python_ref.quantize as ref
from bench import peers
from bench.case import Case, Inputs, Results, Variant, compiled, normal, ours
from kpop_kernels.backends.composite import dynamic8, quantize_int8

OPS = ("quantize_int8", "dequantize_int8", "quantize_dynamic8", "dequantize_dynamic8")
BLOCK: dict[str, Any] = {"block_size": 256}
RANDOM: dict[str, Any] = {"seed": 5, "stream": 3}
STEP = 7
QUICK = (2**14, 2**20)
FULL = (*QUICK, 2**24)

# Relative error of values restored from 8 bits: half a step of 1/127 of the largest of 256 normal numbers at most,
# a whole one when rounded stochastically.
RESTORED = 2e-2


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield each operator on tensors that fit in a cache and that do not."""
    for count in QUICK if quick else FULL:
        yield _quantize_int8(count, "stochastic", device)
        yield _quantize_int8(count, "nearest", device)
        yield _dequantize_int8(count, device)
        yield _quantize_dynamic8(count, device)
        yield _dequantize_dynamic8(count, device)


def affine_outputs(count: int) -> Inputs:
    """Return room for a tensor in affine 8-bit blocks; a tensor of zeros."""
    blocks = -(-count // BLOCK["block_size"])
    return {
        "codes": torch.zeros(count, dtype=torch.uint8),
        "scales": torch.zeros(blocks),
        "zero_points": torch.zeros(blocks, dtype=torch.uint8),
    }


def dynamic_outputs(count: int) -> Inputs:
    """Return room for a tensor on the dynamic map; a tensor of zeros where the map has no negative values."""
    blocks = -(-count // BLOCK["block_size"])
    return {"codes": torch.zeros(count, dtype=torch.uint8), "absmax": torch.zeros(blocks)}


def _case(op: str, count: int, **rest: Any) -> Case:
    return Case(op=op, shape=(count,), dtype=torch.float32, bytes=5 * count, flops=0, bound=0.0, **rest)


def _quantize_int8(count: int, rounding: str, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        return {"x": normal((count,), torch.float32, generator), **affine_outputs(count)}

    def call(op: Callable[..., object], inputs: Inputs) -> Results:
        out = (inputs["codes"], inputs["scales"], inputs["zero_points"])
        op(inputs["x"], rounding=rounding, step=torch.tensor(STEP), out=out, **BLOCK, **RANDOM)
        return out

    def oracle(inputs: Inputs) -> Results:
        return ref.quantize_int8(inputs["x"], rounding=rounding, step=STEP, **BLOCK, **RANDOM)

    idiom = torch.compile(_affine_with_torch_rand if rounding == "stochastic" else _affine_nearest)
    return _case(
        "quantize_int8",
        count,
        make=make,
        oracle=oracle,
        variants=(
            *ours("quantize_int8", call, device, torch.float32),
            restoring(compiled(quantize_int8.quantize_int8, call), _restored_affine),
            restoring(Variant("compiled torch.rand", lambda inputs: idiom(inputs["x"])), _restored_affine)
            if rounding == "stochastic"
            else restoring(Variant("compiled rounding", lambda inputs: idiom(inputs["x"])), _restored_affine),
            *_bitsandbytes_quantize(),
        ),
        setting=rounding,
    )


def _dequantize_int8(count: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        x = normal((count,), torch.float32, generator)
        return {**ref.quantize_int8(x, **BLOCK)._asdict(), "out": torch.empty_like(x)}

    def call(op: Callable[..., object], inputs: Inputs) -> Results:
        op(inputs["codes"], inputs["scales"], inputs["zero_points"], out=inputs["out"], **BLOCK)
        return (inputs["out"],)

    def oracle(inputs: Inputs) -> Results:
        return (ref.dequantize_int8(inputs["codes"], inputs["scales"], inputs["zero_points"], **BLOCK),)

    return _case(
        "dequantize_int8",
        count,
        make=make,
        oracle=oracle,
        variants=(
            *ours("dequantize_int8", call, device, torch.float32),
            compiled(quantize_int8.dequantize_int8, call),
        ),
    )


def _quantize_dynamic8(count: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        return {"x": normal((count,), torch.float32, generator), **dynamic_outputs(count)}

    def call(op: Callable[..., object], inputs: Inputs) -> Results:
        out = (inputs["codes"], inputs["absmax"])
        op(inputs["x"], signed=True, out=out, **BLOCK)
        return out

    return _case(
        "quantize_dynamic8",
        count,
        make=make,
        oracle=lambda inputs: ref.quantize_dynamic8(inputs["x"], signed=True, **BLOCK),
        variants=(
            *ours("quantize_dynamic8", call, device, torch.float32),
            restoring(compiled(dynamic8.quantize_dynamic8, call), _restored_dynamic),
            *_bitsandbytes_quantize(),
            *_torchao_quantize(),
        ),
    )


def _dequantize_dynamic8(count: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        x = normal((count,), torch.float32, generator)
        return {**ref.quantize_dynamic8(x, signed=True, **BLOCK)._asdict(), "out": torch.empty_like(x)}

    def call(op: Callable[..., object], inputs: Inputs) -> Results:
        op(inputs["codes"], inputs["absmax"], signed=True, out=inputs["out"], **BLOCK)
        return (inputs["out"],)

    def oracle(inputs: Inputs) -> Results:
        return (ref.dequantize_dynamic8(inputs["codes"], inputs["absmax"], signed=True, **BLOCK),)

    return _case(
        "dequantize_dynamic8",
        count,
        make=make,
        oracle=oracle,
        variants=(
            *ours("dequantize_dynamic8", call, device, torch.float32),
            compiled(dynamic8.dequantize_dynamic8, call),
            *_bitsandbytes_dequantize(oracle),
        ),
    )


def restoring(variant: Variant, restore: Callable[[Any], Results]) -> Variant:
    """Return a quantizer that is judged by the values its codes stand for."""
    return Variant(
        variant.name,
        variant.run,
        setup=variant.setup,
        value=restore,
        oracle=lambda inputs: (inputs["x"],),
        bound=RESTORED,
    )


def _restored_affine(found: Any) -> Results:
    return (ref.dequantize_int8(*(tensor.cpu() for tensor in found), **BLOCK),)


def _restored_dynamic(found: Any) -> Results:
    return (ref.dequantize_dynamic8(*(tensor.cpu() for tensor in found), signed=True, **BLOCK),)


def _affine_with_torch_rand(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Round stochastically as one writes it in plain PyTorch."""
    blocks, scales, zero_points = _affine_grid(x)
    codes = torch.floor(blocks / scales + torch.rand_like(blocks)) + zero_points
    return codes.clamp(0, 255).to(torch.uint8).view(-1), scales.view(-1), zero_points.view(-1).to(torch.uint8)


def _affine_nearest(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Round to nearest as one writes it in plain PyTorch."""
    blocks, scales, zero_points = _affine_grid(x)
    codes = torch.round(blocks / scales) + zero_points
    return codes.clamp(0, 255).to(torch.uint8).view(-1), scales.view(-1), zero_points.view(-1).to(torch.uint8)


def _affine_grid(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    blocks = x.view(-1, BLOCK["block_size"])
    lo, hi = blocks.amin(1, keepdim=True).clamp_max(0), blocks.amax(1, keepdim=True).clamp_min(0)
    scales = (hi - lo) / 254
    return blocks, scales, torch.ceil(-lo / scales)


def _bitsandbytes_quantize() -> Iterator[Variant]:
    if "bitsandbytes" not in peers.installed():
        return

    def setup(inputs: Inputs) -> Any:
        functional = peers.load("bitsandbytes.functional")
        return functional, inputs["x"], functional.create_dynamic_map(signed=True).to(inputs["x"].device)

    def run(state: Any) -> Any:
        functional, x, code = state
        codes, quant_state = functional.quantize_blockwise(x, code=code, blocksize=BLOCK["block_size"])
        return functional, codes, quant_state

    def restore(found: Any) -> Results:
        functional, codes, quant_state = found
        return (functional.dequantize_blockwise(codes, quant_state),)

    yield restoring(Variant("bitsandbytes", run, setup=setup), restore)


def _bitsandbytes_dequantize(oracle: Callable[[Inputs], Results]) -> Iterator[Variant]:
    if "bitsandbytes" not in peers.installed():
        return

    def setup(inputs: Inputs) -> Any:
        functional = peers.load("bitsandbytes.functional")
        code = torch.from_numpy(ref.dynamic_map(True).copy()).to(inputs["absmax"].device)
        return functional, inputs, code

    def run(state: Any) -> Results:
        functional, inputs, code = state
        return (
            functional.dequantize_blockwise(
                inputs["codes"],
                absmax=inputs["absmax"],
                code=code,
                blocksize=BLOCK["block_size"],
            ),
        )

    yield Variant("bitsandbytes", run, setup=setup, oracle=oracle, bound=1e-6)


def _torchao_quantize() -> Iterator[Variant]:
    if "torchao" not in peers.installed():
        return

    def setup(inputs: Inputs) -> Any:
        utils = peers.load("torchao.optim.quant_utils")
        qmap = torch.tensor(utils.create_dynamic_map(signed=True), device=inputs["x"].device)

        @torch.compile
        def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
            scaled, scale = utils.scale_tensor(x, BLOCK["block_size"])
            return utils.quantize_8bit_with_qmap(scaled, qmap), scale

        return utils, quantize, inputs["x"], qmap

    def run(state: Any) -> Any:
        utils, quantize, x, qmap = state
        return utils, qmap, *quantize(x)

    def restore(found: Any) -> Results:
        utils, qmap, codes, scale = found
        return (utils.dequant_with_qmap(codes, qmap, scale),)

    yield restoring(Variant("torchao", run, setup=setup), restore)
