"""Operators on lists of tensors, derived from the operator on one."""

import re
from collections.abc import Callable
from typing import Any

from .operator import Operator, Result, declare


def declare_foreach(single: Operator, *listed: str) -> Operator:
    """Declare the operator that applies another one to every item of lists, in one call.

    Args:
        single: The operator on one item. Its first argument is among the lists.
        listed: Arguments that become lists, one entry an item; the others are shared by all items.
    """
    stem = single.name.removesuffix("_")
    name = f"{stem}_foreach" + single.name[len(stem) :]

    def check(*args: Any, **kwargs: Any) -> None:
        _require_equal_lengths(operator, args, kwargs)
        for i, (item_args, item_kwargs) in enumerate(operator.items(args, kwargs)):
            try:
                single.check(*item_args, **item_kwargs)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name}: item {i}: {error}") from None
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
        each = [results(*a, **k) for a, k in operator().items(args, kwargs)]
        return tuple(list(column) for column in zip(*each, strict=True))

    return of_lists


def _require_equal_lengths(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    named = dict(zip(operator.parameters, args, strict=False)) | kwargs
    lengths = {name: len(named[name]) for name in operator.listed}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"{operator.name}: the lists differ in length: {found}")
    if 0 in lengths.values():
        raise ValueError(f"{operator.name}: the lists are empty, they must have at least one item")
