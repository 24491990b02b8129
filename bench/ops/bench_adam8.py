"""Moments in 8-bit blocks: averages restored, updated and rounded in one pass, and Adam on top of them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import python_ref.kron
import python_ref.quantize as ref
from bench import peers
from bench.case import Case, Inputs, Results, Variant, compiled, normal, ours
from bench.ops.bench_quantize import BLOCK, FULL, QUICK, RANDOM, affine_outputs, dynamic_outputs
from kpop_kernels.backends.composite import adam8, ema8, stochastic_round

OPS = ("ema_int8_", "ema_sq_dynamic8_", "adam8_", "stochastic_round_bf16")
SCALARS: dict[str, Any] = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
BETA: dict[str, Any] = {"beta": 0.9}

# So large that the update outweighs the parameter, and errors in it are seen.
LR, STEP = 1.0, 1

AFFINE = ("codes", "scales", "zero_points")
DYNAMIC = ("codes", "absmax")


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield each operator on tensors that fit in a cache and that do not."""
    for count in QUICK if quick else FULL:
        yield _ema_int8(count, device)
        yield _ema_sq_dynamic8(count, device)
        yield _adam8(count, device)
        yield _stochastic_round(count, device)


def _ema_int8(count: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        x = normal((count,), torch.float32, generator)
        old = ref.quantize_int8(normal((count,), torch.float32, generator), **BLOCK)
        return {**old._asdict(), "x": x, "out": torch.empty_like(x)}

    def call(op: Callable[..., object], inputs: Inputs) -> Results:
        blocks = [inputs[name] for name in AFFINE]
        op(*blocks, inputs["x"], step=torch.tensor(STEP), out=inputs["out"], **BETA, **BLOCK, **RANDOM)
        return inputs["out"], *blocks

    def oracle(inputs: Inputs) -> Results:
        old = ref.Affine(*(inputs[name] for name in AFFINE))
        mean, new = ref.ema_int8(old, inputs["x"], step=STEP, **BETA, **BLOCK, **RANDOM)
        return mean, *new

    return _case("ema_int8_", count, 10, make, call, oracle, ema8.ema_int8_, device)


def _ema_sq_dynamic8(count: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        x = normal((count,), torch.float32, generator)
        old = ref.quantize_dynamic8(normal((count,), torch.float32, generator).square(), **BLOCK)
        return {**old._asdict(), "x": x, "out": torch.empty_like(x)}

    def call(op: Callable[..., object], inputs: Inputs) -> Results:
        blocks = [inputs[name] for name in DYNAMIC]
        op(*blocks, inputs["x"], out=inputs["out"], **BETA, **BLOCK)
        return inputs["out"], *blocks

    def oracle(inputs: Inputs) -> Results:
        old = ref.Dynamic(*(inputs[name] for name in DYNAMIC))
        mean, new = ref.ema_sq_dynamic8(old, inputs["x"], **BETA, **BLOCK)
        return mean, *new

    return _case("ema_sq_dynamic8_", count, 10, make, call, oracle, ema8.ema_sq_dynamic8_, device)


def _stochastic_round(count: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        x = normal((count,), torch.float32, generator)
        return {"x": x, "out": torch.empty_like(x, dtype=torch.bfloat16)}

    def call(op: Callable[..., object], inputs: Inputs) -> Results:
        op(inputs["x"], step=torch.tensor(STEP), out=inputs["out"], **RANDOM)
        return (inputs["out"],)

    def oracle(inputs: Inputs) -> Results:
        return (ref.stochastic_round_bf16(inputs["x"], step=STEP, **RANDOM),)

    function = stochastic_round.stochastic_round_bf16
    return _case("stochastic_round_bf16", count, 6, make, call, oracle, function, device)


def _adam8(count: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        return {
            "param": normal((count,), torch.float32, generator),
            "grad": normal((count,), torch.float32, generator),
            **{f"m_{name}": tensor for name, tensor in affine_outputs(count).items()},
            **{f"v_{name}": tensor for name, tensor in dynamic_outputs(count).items()},
        }

    def call(op: Callable[..., object], inputs: Inputs) -> Results:
        lr, step = torch.tensor(LR, dtype=torch.float64), torch.tensor(STEP)
        op(*inputs.values(), lr=lr, step=step, **SCALARS, **BLOCK, **RANDOM)
        return [tensor for name, tensor in inputs.items() if name != "grad"]

    def oracle(inputs: Inputs) -> Results:
        param, grad, *moments = inputs.values()
        m, v = ref.Affine(*moments[:3]), ref.Dynamic(*moments[3:])
        new = ref.adam8(param, grad, m, v, lr=LR, step=STEP, **SCALARS, **BLOCK, **RANDOM)
        return new.param, *new.exp_avg, *new.exp_avg_sq

    rivals = (
        Variant("torch fused AdamW, float32", _fused, setup=_float32_moments, **_judged_by_parameter()),
        *_bitsandbytes(),
    )
    return _case("adam8_", count, 16, make, call, oracle, adam8.adam8_, device, *rivals)


def _case(
    op: str,
    count: int,
    bytes_each: int,
    make: Callable[[torch.Generator], Inputs],
    call: Callable[[Callable[..., Any], Inputs], Results],
    oracle: Callable[[Inputs], Results],
    composite: Callable[..., Any],
    device: str,
    *rivals: Variant,
) -> Case:
    """Return a case whose results are exact but for the parameter, and judged with room for its last places."""
    return Case(
        op=op,
        shape=(count,),
        dtype=torch.float32,
        bytes=bytes_each * count,
        flops=0,
        make=make,
        oracle=oracle,
        bound=1e-6 if op == "adam8_" else 0.0,
        variants=(
            *ours(op, call, device, torch.float32),
            Variant("torch.compile", compiled(composite, call).run, bound=1e-2),
            *rivals,
        ),
    )


def _judged_by_parameter() -> dict[str, Any]:
    """Return how Adam with moments of another kind is judged: all start at zero, so first steps agree."""

    def oracle(inputs: Inputs) -> Results:
        zeros = torch.zeros_like(inputs["param"])
        arguments: dict[str, Any] = {"exp_avg": zeros, "exp_avg_sq": zeros, "Q_L": None, "Q_R": None}
        arguments |= {"param": inputs["param"], "grad": inputs["grad"]}
        return (python_ref.kron.adam(**arguments, lr=LR, step=STEP, **SCALARS).param,)

    return {"oracle": oracle, "bound": 1e-2}


def _float32_moments(inputs: Inputs) -> Inputs:
    zeros = torch.zeros_like(inputs["param"])
    step = torch.tensor(float(STEP), device=zeros.device)
    return {"param": inputs["param"], "grad": inputs["grad"], "m": zeros, "v": zeros.clone(), "step": step}


def _fused(inputs: Inputs) -> Results:
    param, grad, m, v, step = inputs.values()
    torch._fused_adamw_(
        [param], [grad], [m], [v], [], [step], lr=LR, amsgrad=False, maximize=False, **SCALARS
    )
    return (param,)


def _bitsandbytes() -> Iterator[Variant]:
    if "bitsandbytes" not in peers.installed():
        return

    def setup(inputs: Inputs) -> Any:
        functional = peers.load("bitsandbytes.functional")
        param = inputs["param"]
        maps = [functional.create_dynamic_map(signed=signed).to(param.device) for signed in (True, False)]
        codes = [torch.zeros_like(param, dtype=torch.uint8) for _ in range(2)]
        absmax = [torch.zeros_like(inputs["v_absmax"]) for _ in range(2)]
        update = partial(
            functional.optimizer_update_8bit_blockwise,
            "adam",
            inputs["grad"],
            param,
            *codes,
            beta1=SCALARS["beta1"],
            beta2=SCALARS["beta2"],
            beta3=0.0,
            alpha=0.0,
            eps=SCALARS["eps"],
            step=STEP,
            lr=LR,
            qmap1=maps[0],
            qmap2=maps[1],
            absmax1=absmax[0],
            absmax2=absmax[1],
            weight_decay=SCALARS["weight_decay"],
        )
        return update, param

    def run(state: Any) -> Results:
        update, param = state
        update()
        return (param,)

    yield Variant("bitsandbytes", run, setup=setup, **_judged_by_parameter())
