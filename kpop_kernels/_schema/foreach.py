"""Operators on lists of tensors, derived from the operator on one."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from .checks import CPU, PLAIN
from .operator import Operator, Result, declare


def declare_foreach(
    single: Operator, *listed: str, check_numbers: Callable[..., None] | None = None
) -> Operator:
    """Declare the operator that applies another one to every item of lists, in one call.

    A backend implements it itself, or it is derived from what the backend has for one item.

    Args:
        single: The operator on one item. Its first argument is among the lists.
        listed: Arguments that become lists, one entry an item; the others are shared by all items.
        check_numbers: Checks the listed arguments of an item that are numbers, given by name, if there are any.
    """
    numbers = [name for name in listed if re.search(rf"\bint {name}\b", single.arguments)]
    assert bool(numbers) == (check_numbers is not None)
    others = [name for name in listed if name not in numbers]
    stem = single.name.removesuffix("_")
    name = f"{stem}_foreach" + single.name[len(stem) :]

    def check(*args: Any, **kwargs: Any) -> None:
        _require_equal_lengths(operator, args, kwargs)
        checked: set[tuple[Any, ...]] = set()
        for i, item in enumerate(operator.items(args, kwargs)):
            kind = _kind(item, others)
            try:
                if kind is None or kind not in checked:
                    single.check(**item)
                elif check_numbers is not None:
                    check_numbers(single.name, **{number: item[number] for number in numbers})
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name}: item {i}: {error}") from None
            if kind is not None:
                checked.add(kind)
        devices = {tensor.device for tensor in operator.deciding(args, kwargs)}
        if len(devices) > 1:
            raise ValueError(f"{name}: the items are on {len(devices)} devices, they must share one")

    operator = Operator(
        name,
        _with_lists(single.arguments, listed),
        check,
        results=_listed_results(single, lambda: operator),
        result_count=single.result_count,
        decided_by=single.decided_by or single.parameters[0],
        single=single,
        listed=listed,
    )
    return declare(operator)


def _kind(item: dict[str, Any], names: Sequence[str]) -> tuple[Any, ...] | None:
    """Return what the check of an item sees of its arguments; None where sizes may be symbols.

    Of a tensor that is a number it sees the value too, where that can be read.
    """
    kind: list[Any] = []
    for name in names:
        value = item.get(name)
        if not isinstance(value, Tensor):
            kind.append(value)
        elif type(value) not in PLAIN:
            return None
        else:
            shape, device = value.shape, value.device
            number = value.item() if not shape and device == CPU else None
            kind.append((shape, value.dtype, device, number))
    return tuple(kind)


def _with_lists(arguments: str, listed: tuple[str, ...]) -> str:
    """Return an argument list where some arguments are lists; these have no defaults."""
    for name in listed:
        arguments, found = re.subn(rf"(\w+(?:\(\w!\))?\??)\s+{name}\b(=[^,]*)?", rf"\1[] {name}", arguments)
        assert found == 1, f"{name} is not one argument of ({arguments})"
    return arguments


def _listed_results(
    single: Operator, operator: Callable[[], Operator]
) -> Callable[..., tuple[list[Result], ...]] | None:
    if single.results is None:
        return None
    results = single.results

    def of_lists(*args: Any, **kwargs: Any) -> tuple[list[Result], ...]:
        each = [results(**item) for item in operator().items(args, kwargs)]
        return tuple(list(column) for column in zip(*each, strict=True))

    return of_lists


def _require_equal_lengths(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    named = operator.named(args, kwargs)
    lists = {name: named[name] for name in operator.listed if name in named}
    for name, value in lists.items():
        if not isinstance(value, (list, tuple)):
            kind = type(value).__name__
            raise TypeError(
                f"{operator.name}: {name} is of type {kind}, it must be a list with one entry an item"
            )
    lengths = {name: len(value) for name, value in lists.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"{operator.name}: the lists differ in length: {found}")
    if 0 in lengths.values():
        raise ValueError(f"{operator.name}: the lists are empty, they must have at least one item")
