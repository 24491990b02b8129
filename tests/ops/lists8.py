"""Lists of tensors in 8-bit blocks, for the tests that one call on a list is a call on each item."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kpop_kernels._schema import OPERATORS
from python_ref import quantize as oracle
from tests.ops.blocks import assert_same, values

SHAPES = ((5,), (3, 300), (0,), (), (256,), (2048,), (9001,))
KEY = {"seed": 2**63 + 11}
ADAM = {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1}
SCALARS: dict[str, dict[str, Any]] = {
    "quantize_int8": KEY,
    "dequantize_int8": {},
    "quantize_dynamic8": {"signed": True},
    "dequantize_dynamic8": {"signed": True},
    "ema_int8_": KEY | {"beta": 0.9},
    "ema_sq_dynamic8_": {"beta": 0.99},
    "adam8_": KEY | ADAM,
    "stochastic_round_bf16": KEY,
}
"""Every operator that has one on lists, and the arguments that its items share."""


def items(
    op: str, shapes: Sequence[tuple[int, ...]], block_size: int, mixed: bool = True
) -> list[list[Tensor]]:
    """Return the tensors of every item; those of two dimensions are not contiguous.

    Where items are mixed, their dtypes take turns if the operator takes several.
    """
    several = mixed and op != "stochastic_round_bf16"
    dtypes = (torch.float32, torch.float32, torch.bfloat16, torch.float16) if several else (torch.float32,)
    return [_item(op, i, shape, dtypes[i % len(dtypes)], block_size) for i, shape in enumerate(shapes)]


def _item(op: str, seed: int, shape: tuple[int, ...], dtype: torch.dtype, block_size: int) -> list[Tensor]:
    x, old = values(seed, *shape, dtype=dtype), values(seed + 50, *shape)
    if len(shape) == 2:
        x = x.mT.contiguous().mT
    affine = list(oracle.quantize_int8(old, block_size=block_size))
    dynamic = list(oracle.quantize_dynamic8(old, block_size=block_size, signed=True))
    squares = list(oracle.quantize_dynamic8(old.square(), block_size=block_size))
    tensors = {
        "dequantize_int8": affine,
        "dequantize_dynamic8": dynamic,
        "ema_int8_": [*affine, x],
        "ema_sq_dynamic8_": [*squares, x],
        "adam8_": [values(seed + 90, *shape, dtype=dtype), x, *affine, *squares],
    }
    return tensors.get(op, [x])


def with_tensors(numbers: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return numbers of items with steps as operators take them."""
    return numbers | {"step": [torch.tensor(step) for step in numbers["step"]]}


def numbers_of_items(op: str, count: int, mixed: bool = True, steps: int = 3) -> dict[str, list[Any]]:
    """Return the numbers that items have of their own, by argument; those of several steps differ in found_inf."""
    if "seed" not in SCALARS[op]:
        return {}
    known = [torch.tensor(5 + i) for i in range(steps)]
    numbers: dict[str, list[Any]] = {
        "step": [known[i % steps] for i in range(count)],
        "stream": list(range(7, 7 + count)),
        "offset": [3 * i if mixed and i % 3 == 0 else 8 * i for i in range(count)],
    }
    if op == "adam8_":
        found = [None, torch.tensor(0.0), torch.tensor(1.0), None]
        numbers["found_inf"] = [found[i % 4] if steps > 1 else None for i in range(count)]
    return numbers


def assert_list_is_its_items(
    op: str,
    operator: Callable[[str], Callable[..., Any]],
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    block_size: int = 256,
    mixed: bool = True,
    steps: int = 3,
) -> None:
    """Require of a backend that a call on a list leaves and returns the bits of a call on each item.

    Args:
        op: The operator on one item.
        operator: Returns a function by the name of an operator.
        shapes: Shape of each item.
        block_size: Elements of a block, where the operator has blocks.
        mixed: Whether items differ in dtype, and in whether they begin inside a call of the generator.
        steps: How many steps items are of.
    """
    scalars = dict(SCALARS[op]) if op == "stochastic_round_bf16" else SCALARS[op] | {"block_size": block_size}
    one, many = (items(op, shapes, block_size, mixed) for _ in range(2))
    numbers = numbers_of_items(op, len(shapes), mixed, steps)
    expected = [
        operator(op)(*tensors, **scalars, **{name: column[i] for name, column in numbers.items()})
        for i, tensors in enumerate(one)
    ]
    lists = [list(column) for column in zip(*many, strict=True)]
    stem = op.removesuffix("_")
    results = operator(f"{stem}_foreach{op[len(stem) :]}")(*lists, **scalars, **numbers)
    for i in range(len(shapes)):
        assert_same(many[i], one[i])
        if OPERATORS[op].result_count > 1:
            assert_same([column[i] for column in results], expected[i])
        elif results is not None:
            assert_same([results[i]], [expected[i]])
