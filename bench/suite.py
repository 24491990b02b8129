"""One problem for each operator: inputs, and the oracle that says what they must give."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import python_ref.inverse_root
import python_ref.newton_schulz
import python_ref.quantize as ref
from bench import suite_kron
from bench.problem import M, N, Problem, flat, normal
from kpop_kernels import coefficients
from kpop_kernels._schema import OPERATORS


def problem(op: str, dtype: torch.dtype) -> Problem:
    """Return an operator's problem, the same at every call."""
    return PROBLEMS[op](dtype, torch.Generator().manual_seed(0))


RANDOM: dict[str, Any] = {"seed": 5, "stream": 3, "offset": 2**35 - 9}
BLOCK_SIZE: dict[str, Any] = {"block_size": 64}


def _quantize_int8(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    tensors = {"x": normal((M, N), dtype, generator)}
    return Problem(tensors, BLOCK_SIZE | RANDOM, ref.quantize_int8, zero_dim={"step": 7})


def _quantize_dynamic8(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    return Problem(
        {"x": normal((M, N), dtype, generator)}, BLOCK_SIZE | {"signed": True}, ref.quantize_dynamic8
    )


def _affine(generator: torch.Generator) -> ref.Affine:
    return ref.quantize_int8(normal((M, N), torch.float32, generator), **BLOCK_SIZE)


def _dynamic(generator: torch.Generator) -> ref.Dynamic:
    return ref.quantize_dynamic8(normal((M, N), torch.float32, generator).square(), **BLOCK_SIZE)


def _dequantize_int8(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    return Problem(_affine(generator)._asdict(), BLOCK_SIZE | {"dtype": dtype}, ref.dequantize_int8)


def _dequantize_dynamic8(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    return Problem(_dynamic(generator)._asdict(), BLOCK_SIZE | {"dtype": dtype}, ref.dequantize_dynamic8)


def _ema_int8(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    def oracle(codes: Tensor, scales: Tensor, zero_points: Tensor, x: Tensor, **scalars: Any) -> Any:
        return ref.ema_int8(ref.Affine(codes, scales, zero_points), x, **scalars)

    tensors = _affine(generator)._asdict() | {"x": normal((M, N), dtype, generator)}
    return Problem(tensors, {"beta": 0.9} | BLOCK_SIZE | RANDOM, oracle, zero_dim={"step": 7})


def _ema_sq_dynamic8(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    def oracle(codes: Tensor, absmax: Tensor, x: Tensor, **scalars: Any) -> Any:
        return ref.ema_sq_dynamic8(ref.Dynamic(codes, absmax), x, **scalars)

    tensors = _dynamic(generator)._asdict() | {"x": normal((M, N), dtype, generator)}
    return Problem(tensors, {"beta": 0.9} | BLOCK_SIZE, oracle)


def _adam8(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    def oracle(param: Tensor, grad: Tensor, *moments: Tensor, **scalars: Any) -> Any:
        return ref.adam8(param, grad, ref.Affine(*moments[:3]), ref.Dynamic(*moments[3:]), **scalars)

    tensors = {name: normal((M, N), dtype, generator) for name in ("param", "grad")}
    tensors |= {f"exp_avg_{name}": tensor for name, tensor in _affine(generator)._asdict().items()}
    tensors |= {f"exp_avg_sq_{name}": tensor for name, tensor in _dynamic(generator)._asdict().items()}
    scalars = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1} | BLOCK_SIZE | RANDOM
    return Problem(tensors, scalars, oracle, zero_dim={"lr": 0.125, "step": 7})


def _stochastic_round_bf16(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    tensors = {"x": normal((M, N), dtype, generator).to(torch.float32)}
    return Problem(tensors, RANDOM, ref.stochastic_round_bf16, zero_dim={"step": 7})


POLAR_STEPS = coefficients.polar_schedule("polar_express", 5)
POLAR: dict[str, Any] = {
    "coefficients": [c for polynomial in POLAR_STEPS for c in polynomial],
    "method": "standard",
    "restarts": [],
    "normalize": True,
    "eps": 0.0,
}
ROOT: dict[str, Any] = {
    "p": 2,
    "damping": 0.0,
    "relative_damping": 0.0,
    "method": "newton_schulz",
    "schedule": [c for cubic in coefficients.inverse_root_schedule("cushioned") for c in cubic],
    "second_stage": [c for cubic in coefficients.second_stage() for c in cubic],
    "precision": "fp32",
}


def _inverse_root(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    def oracle(A: Tensor, p: int, **scalars: Any) -> Any:
        return python_ref.inverse_root.inverse_root(A, p), python_ref.inverse_root.spectrum_bound(A)

    root = normal((M, 4 * M), torch.float64, generator)
    A = (root @ root.mT / (4 * M)).to(dtype)
    return Problem({"A": A}, ROOT, oracle, bound=_epsilons(2e-4, dtype))


def _newton_schulz(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    def oracle(X: Tensor, **scalars: Any) -> Tensor:
        return python_ref.newton_schulz.map_singular_values(X, POLAR_STEPS)

    return Problem({"X": normal((M, N), dtype, generator)}, POLAR, oracle, bound=_epsilons(2e-5, dtype))


def _on_lists(
    single: Callable[[torch.dtype, torch.Generator], Problem], outputs: tuple[str, ...]
) -> Callable[..., Problem]:
    """Return the problem of an operator that writes lists given to it: two items of the operator on one."""

    def build(dtype: torch.dtype, generator: torch.Generator) -> Problem:
        items = [single(dtype, generator) for _ in range(2)]
        answers = [item.expected() for item in items]
        (name,) = items[0].tensors
        tensors = {name: flat([item.tensors[name] for item in items])}
        for index, name in enumerate(outputs):
            of_dtype = dtype if name == "out" else torch.float32
            tensors[name] = [torch.zeros_like(answer[index], dtype=of_dtype) for answer in answers]

        def oracle(*lists: list[Tensor], **scalars: Any) -> Any:
            return list(zip(*answers, strict=True))

        return Problem(tensors, items[0].scalars, oracle, bound=items[0].bound)

    return build


def _symm_mm(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    def oracle(A: Tensor, B: Tensor, *, C: Tensor | None, alpha: float, beta: float) -> Tensor:
        return alpha * A.to(torch.float64) @ B.to(torch.float64)

    root = normal((M, N), torch.float64, generator)
    A = (root @ root.mT / N).to(dtype)
    return Problem({"A": A, "B": A.clone()}, {"C": None, "alpha": 0.5, "beta": 0.0}, oracle)


def _syrk(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    def oracle(X: Tensor, *, C: Tensor | None, alpha: float, beta: float, side: str) -> Tensor:
        return alpha * X.to(torch.float64) @ X.to(torch.float64).mT

    options = {"C": None, "alpha": 0.5, "beta": 0.0, "side": "left"}
    return Problem({"X": normal((M, N), dtype, generator)}, options, oracle)


def _epsilons(error: float, dtype: torch.dtype) -> float:
    """Return the bound of an iteration that ends within an error, however exact its arithmetic."""
    return max(16.0, error / torch.finfo(dtype).eps)


def _foreach(op: str, single: Callable[[torch.dtype, torch.Generator], Problem]) -> Callable[..., Problem]:
    """Return the problem of an operator on lists: two items of the operator on one."""

    def build(dtype: torch.dtype, generator: torch.Generator) -> Problem:
        items = [single(dtype, generator) for _ in range(2)]
        first, listed = items[0], OPERATORS[op].listed

        def oracle(*lists: list[Tensor], **scalars: Any) -> Any:
            shared = {name: value for name, value in scalars.items() if name not in listed}
            given = [name for name in (*first.scalars, *first.zero_dim) if name in listed]
            answers = []
            for i, tensors in enumerate(zip(*lists, strict=True)):
                own = {name: scalars[name][i] for name in given}
                answers.append(flat(items[i].oracle(*tensors, **shared, **own)))
            return list(zip(*answers, strict=True))

        def spread(values: Mapping[str, Any]) -> dict[str, Any]:
            return {name: _two(value) if name in listed else value for name, value in values.items()}

        tensors = {name: flat([item.tensors[name] for item in items]) for name in items[0].tensors}
        # Lists have no defaults: what an item may leave out is given.
        defaults = {k: v for k, v in OPERATORS[op].item_defaults.items() if k not in first.zero_dim}
        return Problem(
            tensors, spread({**defaults, **first.scalars}), oracle, spread(first.zero_dim), first.bound
        )

    return build


def _two(value: Any) -> list[Any]:
    """Return values for two items, different ones where they are numbers."""
    return [value, value + 1 if isinstance(value, int | float) else value]


PROBLEMS: dict[str, Callable[[torch.dtype, torch.Generator], Problem]] = {
    "quantize_int8": _quantize_int8,
    "dequantize_int8": _dequantize_int8,
    "quantize_dynamic8": _quantize_dynamic8,
    "dequantize_dynamic8": _dequantize_dynamic8,
    "ema_int8_": _ema_int8,
    "ema_sq_dynamic8_": _ema_sq_dynamic8,
    "adam8_": _adam8,
    "stochastic_round_bf16": _stochastic_round_bf16,
    "inverse_root": _inverse_root,
    "inverse_root_foreach": _on_lists(_inverse_root, ("out", "bounds")),
    "newton_schulz": _newton_schulz,
    "newton_schulz_foreach": _on_lists(_newton_schulz, ("out",)),
    "symm_mm": _symm_mm,
    "syrk": _syrk,
} | suite_kron.PROBLEMS
PROBLEMS |= {op.name: _foreach(op.name, PROBLEMS[op.single.name]) for op in OPERATORS.values() if op.single}
