"""Known values: small calls whose outcome is known without computing it the way a backend does.

Integers, powers of two and signed permutations have exact results in float32; KPOP's 2x2 example is given in
closed form by its article and was evaluated in float64.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import backends, coefficients
from ._schema import OPERATORS, Operator
from .backends.metal import canary

_TURN = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
_CYCLE = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
_X = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, -1.0]])
_G = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
_G_ROTATED = torch.tensor([[6.0, 4.0, 5.0], [-3.0, -1.0, -2.0]])
_FIRST_AXES = (torch.eye(2, 1), torch.eye(3, 1))
_PARTS = (
    torch.tensor([[1.0]]),
    torch.tensor([[0.0], [4.0]]),
    torch.tensor([[0.0, 2.0, 3.0]]),
    torch.tensor([[0.0, 0.0, 0.0], [0.0, 5.0, 6.0]]),
)
_ZEROS = torch.zeros(2, 2)
_FIRST_STEP = {"weight_decay": 0.0, "step": torch.tensor(1)}
_ONE = torch.ones(1)
_STEPS = torch.tensor([-127.0, 0.0, 127.0])
_STEP_CODES = torch.tensor([0, 127, 254], dtype=torch.uint8)
_MIDDLE = torch.tensor([127], dtype=torch.uint8)
_ENDS = torch.tensor([0, 255], dtype=torch.uint8)
_NOTHING = (torch.zeros(2, dtype=torch.uint8), torch.zeros(1), torch.zeros(1, dtype=torch.uint8))
_RANDOM = {"seed": 1, "step": torch.tensor(1), "stream": 1}
_PRODUCT = {"C": None, "alpha": 1.0, "beta": 0.0}
_DIAGONAL = torch.tensor([[4.0, 0.0], [0.0, 1.0]])
_DIAGONAL_ROOT = torch.tensor([[0.5, 0.0], [0.0, 1.0]])
_ROOT = {
    "p": 2,
    "damping": 0.0,
    "relative_damping": 0.0,
    "method": "newton_schulz",
    "schedule": [c for cubic in coefficients.inverse_root_schedule("cushioned") for c in cubic],
    "second_stage": [c for cubic in coefficients.second_stage() for c in cubic],
    "precision": "fp32",
}
_POLAR = {
    "coefficients": [c for quintic in coefficients.polar_schedule("polar_express", 8) for c in quintic],
    "method": "standard",
    "restarts": [],
    "normalize": True,
    "eps": 0.0,
}


Argument = Tensor | list[Tensor | None] | None


@dataclass(frozen=True)
class Case:
    """One call and its known outcome.

    Attributes:
        op: Operator.
        tensors: Its tensors, in order.
        expected: What it returns, or for an operator that only writes its arguments, what they hold
            afterwards; the last ones may be left out.
        scalars: Its keyword arguments.
        tolerance: Largest deviation of an element; 0 where the result is exact.
    """

    op: str
    tensors: tuple[Argument, ...]
    expected: tuple[Tensor, ...]
    scalars: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0


_SINGLE_CASES = (
    Case(
        "gram_ema_",
        (torch.tensor([[2.0, 1.0], [1.0, 3.0]]), _X),
        (torch.tensor([[11.0, 4.5], [4.5, 5.5]]),),
        {"beta": 0.5, "alpha": 2.0, "side": "left"},
    ),
    Case(
        "gram_ema_",
        (4 * torch.eye(3), _X),
        (torch.tensor([[2.0, 2.0, 0.0], [2.0, 6.0, -1.0], [0.0, -1.0, 2.0]]),),
        {"beta": 0.25, "alpha": 1.0, "side": "right"},
    ),
    Case("kron_rotate", (_G, _TURN, _CYCLE), (_G_ROTATED,)),
    Case("kron_rotate", (_G_ROTATED, _TURN, _CYCLE), (_G,), {"inverse": True}),
    # From zero moments, without eps, every coordinate moves by lr against the sign of its gradient.
    Case(
        "kron_adam_",
        (torch.ones(2, 2), torch.tensor([[2.0, -4.0], [8.0, -0.5]]), _ZEROS, _ZEROS, _TURN, None),
        (
            torch.tensor([[0.25, 1.25], [0.25, 1.25]]),
            torch.tensor([[4.0, -0.25], [-1.0, 2.0]]),
            torch.tensor([[32.0, 0.125], [2.0, 8.0]]),
        ),
        {
            **_FIRST_STEP,
            **{"lr": torch.tensor(0.5), "beta1": 0.5, "beta2": 0.5, "eps": 0.0, "weight_decay": 0.5},
        },
    ),
    Case(
        "kron_adam_",
        (
            _ZEROS,
            torch.tensor([[1.0, 0.5], [0.5, 1.0]]),
            _ZEROS,
            _ZEROS,
            torch.tensor(
                [[0.9238795325112867, -0.3826834323650898], [0.3826834323650898, 0.9238795325112867]]
            ),
            torch.tensor(
                [[0.8506508083520399, -0.5257311121191335], [0.5257311121191335, 0.8506508083520399]]
            ),
        ),
        (
            torch.tensor(
                [[-0.01758452724619359, -0.07448925276707322], [-0.042452804165679786, -0.17983296428130574]]
            ),
        ),
        {**_FIRST_STEP, "lr": torch.tensor(0.1), "beta1": 0.9, "beta2": 0.999, "eps": 1e-8},
        tolerance=1e-6,
    ),
    Case("symm_mm", (_X, 2 * _X.T), (torch.tensor([[10.0, 4.0], [4.0, 4.0]]),), _PRODUCT),
    Case("syrk", (_X,), (torch.tensor([[5.0, 2.0], [2.0, 2.0]]),), {**_PRODUCT, "side": "left"}),
    Case("inverse_root", (_DIAGONAL,), (_DIAGONAL_ROOT,), _ROOT, tolerance=2e-4),
    Case(
        "inverse_root_foreach",
        ([_DIAGONAL], [_ZEROS], [torch.zeros(())]),
        (_DIAGONAL_ROOT,),
        _ROOT,
        tolerance=2e-4,
    ),
    Case("newton_schulz", (_DIAGONAL,), (torch.eye(2),), _POLAR, tolerance=2e-2),
    Case("newton_schulz_foreach", ([_DIAGONAL], [_ZEROS]), (torch.eye(2),), _POLAR, tolerance=2e-2),
    Case(
        "rebase_moments_",
        (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 4.0], [9.0, 16.0]]), _TURN, None),
        (torch.tensor([[-3.0, -4.0], [1.0, 2.0]]), torch.tensor([[9.0, 16.0], [1.0, 4.0]])),
    ),
    # A scale of 1: multiples of it are on the grid, whatever the random numbers.
    Case("quantize_int8", (_STEPS,), (_STEP_CODES, _ONE, _MIDDLE)),
    Case("dequantize_int8", (_STEP_CODES, _ONE, _MIDDLE), (_STEPS,)),
    Case("quantize_dynamic8", (torch.tensor([0.0, 2.0]),), (_ENDS, 2 * _ONE)),
    Case("dequantize_dynamic8", (_ENDS, 2 * _ONE), (torch.tensor([0.0, 2.0]),)),
    Case("ema_int8_", (_STEP_CODES, _ONE, _MIDDLE, 3 * _STEPS), (2 * _STEPS,), {"beta": 0.5, **_RANDOM}),
    Case(
        "ema_sq_dynamic8_",
        (_ENDS, _ONE, torch.tensor([0.0, 2.0])),
        (torch.tensor([0.0, 2.5]),),
        {"beta": 0.5},
    ),
    Case(
        "adam8_",
        (torch.ones(2), torch.tensor([2.0, -4.0]), *_NOTHING, *_NOTHING[:2]),
        (torch.tensor([0.25, 1.25]),),
        {**_RANDOM, "lr": 0.5, "beta1": 0.5, "beta2": 0.5, "eps": 0.0, "weight_decay": 0.5},
    ),
    Case(
        "kron_adam8_",
        (
            torch.ones(2, 2),
            torch.tensor([[2.0, -4.0], [8.0, -0.5]]),
            *(torch.zeros(2, 2, dtype=torch.uint8), *_NOTHING[1:]),
            *(torch.zeros(2, 2, dtype=torch.uint8), _NOTHING[1]),
            *(_TURN, None),
        ),
        (torch.tensor([[0.25, 1.25], [0.25, 1.25]]),),
        {
            **_RANDOM,
            **{"lr": 0.5, "beta1": 0.5, "beta2": 0.5, "eps": 0.0, "weight_decay": 0.5},
        },
    ),
    Case("stochastic_round_bf16", (_STEPS,), (_STEPS,), _RANDOM),
    Case("whiten", (_G_ROTATED, _TURN, _CYCLE.T), (_G,)),
    Case(
        "whiten_update_",
        (torch.ones(2, 3), _G_ROTATED, _TURN, _CYCLE.T),
        (0.75 - _G,),
        {"lr": 0.5, "weight_decay": 0.5, "scale": 2.0},
    ),
    Case(
        "kl_gram_ema_",
        (4 * torch.eye(2), 4 * torch.eye(3), _X, 2 * torch.eye(2), None),
        (
            torch.tensor([[2.75, 0.5], [0.5, 2.0]]),
            torch.tensor([[3.0, 3.0, 0.0], [3.0, 9.0, -1.5], [0.0, -1.5, 3.0]]),
        ),
        {"beta": 0.25, "eps": 0.5},
    ),
    Case(
        "refresh_eigenbasis",
        (torch.tensor([[1.0, 0.0], [0.0, 4.0]]), _TURN),
        (_TURN, torch.tensor([4.0, 1.0]), torch.eye(2), torch.zeros(())),
        tolerance=1e-6,
    ),
    Case(
        "nystrom_eigh",
        (torch.tensor([[2.0, 0.0], [0.0, 1.0]]), None, None, torch.eye(2)),
        (torch.tensor([[1.0], [0.0]]), torch.tensor([2.0])),
        {"rank": 1, "power_iterations": 1, "beta": 0.5, "side": "left"},
        tolerance=1e-5,
    ),
    Case("block_project", (_G, *_FIRST_AXES), _PARTS),
    Case(
        "block_lift_", (torch.ones(2, 3), *_PARTS, *_FIRST_AXES), (0.5 + 2 * _G,), {"alpha": 2.0, "beta": 0.5}
    ),
)
"""Every operator on single tensors."""


def _in_lists(op: Operator, case: Case) -> Case:
    """Return the case of an operator on one item as that of lists with this item alone."""
    scalars = {name: [value] if name in op.listed else value for name, value in case.scalars.items()}
    missing = {"step": [None], "stream": [0], "offset": [0], "found_inf": [None]}.items()
    scalars |= {name: value for name, value in missing if name in op.listed and name not in scalars}
    tensors: tuple[Argument, ...] = tuple([t] for t in case.tensors if not isinstance(t, list))
    return replace(case, op=op.name, tensors=tensors, scalars=scalars)


CASES = _SINGLE_CASES + tuple(
    _in_lists(op, case)
    for op in OPERATORS.values()
    for case in _SINGLE_CASES
    if op.single is not None and op.single.name == case.op
)


class Outcome(NamedTuple):
    """What one operator of one backend did on a device.

    Attributes:
        backend: Backend.
        op: Operator, or "arithmetic" for the rounding of an Apple GPU.
        device: Device type.
        deviation: Largest difference to a known value over all cases, NaN if there was one; of the arithmetic,
            the number of roundings that the kernels rely on and that are wrong.
        passed: Whether every case was within its tolerance.
    """

    backend: str
    op: str
    device: str
    deviation: float
    passed: bool


def run(device_types: tuple[str, ...]) -> Iterator[Outcome]:
    """Run every operator of every available backend on its device types among those given.

    On Apple GPUs the arithmetic that the operators rely on is checked, too.

    A backend that raises is broken, and the exception is the caller's.
    """
    for name, reason in backends.available().items():
        backend = backends.get(name)
        devices = [device for device in device_types if not backend.devices or device in backend.devices]
        for op in backend.operators if reason is None else ():
            cases = [case for case in CASES if case.op == op]
            for device in devices:
                deviations = [_deviation(backend, case, device) for case in cases]
                passed = all(d <= case.tolerance for d, case in zip(deviations, cases, strict=True))
                worst = max(deviations, key=lambda d: float("inf") if d != d else d, default=0.0)
                yield Outcome(name, op, device, worst, passed)
        if name == "metal" and reason is None:
            yield from map(_arithmetic, devices)


def _arithmetic(device: str) -> Outcome:
    """Say whether a GPU rounds as bit-identical quantization needs it."""
    findings = canary.check_arithmetic(device)
    wrong = sum(not findings[name] for name in canary.REQUIRED)
    return Outcome("metal", "arithmetic", device, float(wrong), findings["bits_promised"])


def _deviation(backend: backends.Backend, case: Case, device: str) -> float:
    """Return the largest difference between a call's outcome and the known one."""
    operator = OPERATORS[case.op]
    arguments = [_copied(tensor, device) for tensor in case.tensors]
    result = getattr(backend, case.op)(*arguments, **case.scalars)
    if operator.results is None:
        named = dict(zip(operator.parameters, arguments, strict=False))
        result = [named[name] for name in operator.written]
    outcome = [value for value in _flat(result) if value is not None]
    differences = [
        (got.to("cpu", torch.float64) - known).abs().max()
        for got, known in zip(outcome, case.expected, strict=False)
    ]
    return torch.stack(differences).max().item()


def _copied(value: Argument, device: str) -> Any:
    if isinstance(value, list):
        return [_copied(item, device) for item in value]
    return None if value is None else value.clone().to(device)


def _flat(value: Any) -> list[Any]:
    """Return what nested lists and tuples hold, in order."""
    if isinstance(value, list | tuple):
        return [item for nested in value for item in _flat(nested)]
    return [value]
