"""What an operator is: a schema, its checks and its results, defined with torch once."""

import re
from ast import literal_eval
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import own_their_memory, refuse_autograd, refuse_overlap, scalar

NAMESPACE = "kpop"

OPERATORS: dict[str, "Operator"] = {}
"""Every operator of the package by name; filled by `declare`."""


class Result(NamedTuple):
    """Shape and dtype of one result."""

    shape: Sequence[int]
    dtype: torch.dtype


@dataclass(frozen=True)
class Operator:
    """One operator: what it is called with, what it refuses, what it returns.

    A backend implements an operator as one function that writes: results arrive as the keyword argument
    ``out``, a tensor where there is one result and a tuple where there are several.

    Attributes:
        name: Name under ``torch.ops.kpop``. A trailing underscore says that it writes its arguments.
        arguments: Argument list in torch.library's schema language; ``Tensor(a!)`` marks what is written.
        check: Raises ValueError or TypeError for arguments that do not fit. Sees shapes, dtypes, devices and
            scalars only, so that it also runs on fake tensors.
        results: Shapes and dtypes of the results; None for operators that only write their arguments.
        result_count: Number of results.
        decided_by: The argument whose device and dtype choose the backend; the first one by default.
        single: For an operator on lists of tensors, the operator that is applied to each item.
        listed: Names of the arguments, results aside, that are lists with one entry an item.
    """

    name: str
    arguments: str
    check: Callable[..., None]
    results: Callable[..., tuple[Result | list[Result], ...]] | None = None
    result_count: int = 1
    decided_by: str | None = None
    single: "Operator | None" = None
    listed: tuple[str, ...] = ()

    @property
    def qualified_name(self) -> str:
        """Name with its namespace, as torch.library wants it."""
        return f"{NAMESPACE}::{self.name}"

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of all arguments, in order."""
        named = (argument.split("=")[0].split() for argument in self.arguments.split(","))
        return tuple(words[-1] for words in named if len(words) > 1)

    @cached_property
    def written(self) -> tuple[str, ...]:
        """Names of the arguments that the operator writes, outputs included."""
        return (*re.findall(r"!\)(?:\[\])?\??\s+(\w+)", self.arguments), *self.outputs)

    @cached_property
    def written_names(self) -> frozenset[str]:
        """The same, to look names up."""
        return frozenset(self.written)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the output arguments of the ``out`` overload."""
        if self.results is None:
            return ()
        return ("out",) if self.result_count == 1 else tuple(f"out{i}" for i in range(self.result_count))

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """Names of the keyword tensors, which may be given as numbers to a backend's function."""
        keywords = self.arguments.partition("*, ")[2]
        return tuple(re.findall(r"\bTensor\??\s+(\w+)", keywords))

    @cached_property
    def item_defaults(self) -> dict[str, Any]:
        """Defaults that the operator on one item has for arguments that are lists here."""
        assert self.single is not None
        defaults = re.findall(r"(\w+)=(None|[\d.]+)(?=,|$)", self.single.arguments)
        return {name: literal_eval(value) for name, value in defaults if name in self.listed}

    def deciding(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Tensor]:
        """Return the tensors whose device and dtype choose the backend: one, or one for each item of a list."""
        name, position = self._decider
        found = args[position] if position < len(args) else kwargs[name]
        return (found,) if isinstance(found, Tensor) else found

    @cached_property
    def _decider(self) -> tuple[str, int]:
        name = self.decided_by or self.parameters[0]
        return name, self.parameters.index(name)

    def guarded(self, implementation: Callable[..., None]) -> Callable[..., Any]:
        """Return a backend's function behind the checks, with ``out`` optional."""
        if self.results is None:

            def in_place(*args: Any, **kwargs: Any) -> None:
                kwargs = self._with_tensors(kwargs)
                self._validate(args, kwargs)
                implementation(*args, **kwargs)

            return in_place

        def functional(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            kwargs = self._with_tensors(kwargs)
            given = () if out is None else (out,) if self.result_count == 1 else tuple(out)
            self._validate(args, kwargs, given)
            outputs = given or self._allocate(args, kwargs)
            result = outputs[0] if self.result_count == 1 else outputs
            implementation(*args, out=result, **kwargs)
            return result

        return functional

    def unguarded(
        self, implementation: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Callable[..., Any]]:
        """Return a backend's function as overloads without checks, for calls that are like a checked one."""
        if self.results is None:
            return {"": implementation}
        inputs = {name: value for name, value in kwargs.items() if name not in self.outputs}
        results, device = self.results(*args, **inputs), self.deciding(args, inputs)[0].device

        def functional(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            if out is None:
                outputs = tuple(_empty(result, device) for result in results)
                out = outputs[0] if self.result_count == 1 else outputs
            implementation(*args, out=out, **kwargs)
            return out

        return self.overloads(functional)

    def overloads(self, implementation: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
        """Return a guarded implementation as the overloads that torch dispatches to."""
        if self.results is None:
            return {"": implementation}

        def with_outputs(*args: Any, **kwargs: Any) -> None:
            outputs = tuple(kwargs.pop(name) for name in self.outputs)
            implementation(*args, out=outputs[0] if self.result_count == 1 else outputs, **kwargs)

        return {"": implementation, ".out": with_outputs}

    def schemas(self) -> dict[str, str]:
        """Return the schema of each overload."""
        if self.results is None:
            return {"": f"({self.arguments}) -> ()"}
        keyword_only = "" if "*" in self.arguments else "*, "
        kind = "[]" if self.single else ""
        first_free = ord("a") + self.arguments.count("!")
        outputs = ", ".join(
            f"Tensor({chr(first_free + i)}!){kind} {name}" for i, name in enumerate(self.outputs)
        )
        returned = ", ".join([f"Tensor{kind}"] * self.result_count)
        return {
            "": f"({self.arguments}) -> ({returned})",
            ".out": f"({self.arguments}, {keyword_only}{outputs}) -> ()",
        }

    def items(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the arguments of each item of an operator on lists, results included, by name.

        It is one dictionary that is changed from item to item; all arguments of an operator on one item.
        """
        if self.single is None:
            yield self.named(args, kwargs)
            return
        item = self.named(args, kwargs)
        out = item.pop("out", None)
        given = [name for name in self.listed if name in item]
        rows = zip(*[item[name] for name in given], strict=True)
        if out is None:
            for row in rows:
                item.update(zip(given, row, strict=True))
                yield item
            return
        results = out if self.result_count == 1 else zip(*out, strict=True)
        for row, result in zip(rows, results, strict=True):
            item.update(zip(given, row, strict=True), out=result)
            yield item

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return all arguments by name."""
        return dict(zip(self.parameters, args, strict=False)) | kwargs

    def _with_tensors(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Turn numbers given for keyword tensors into 0-d tensors."""
        numbers = {
            name: scalar(kwargs[name]) for name in self.scalars if isinstance(kwargs.get(name), (int, float))
        }
        return kwargs | numbers if numbers else kwargs

    def _allocate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        assert self.results is not None
        device = self.deciding(args, kwargs)[0].device
        return tuple(_empty(result, device) for result in self.results(*args, **kwargs))

    def _validate(self, args: tuple[Any, ...], kwargs: dict[str, Any], out: tuple[Any, ...] = ()) -> None:
        """Refuse arguments that do not fit, want a gradient, or share memory that is written."""
        self.check(*args, **kwargs)
        if out:
            self._check_outputs(args, kwargs, out)
        named = self.named(args, kwargs) | dict(zip(self.outputs, out, strict=False))
        if own_their_memory(*self._written_and_read(named)):
            return
        tensors = dict(_named_tensors(named))
        written = dict(_named_tensors({name: named.get(name) for name in self.written}))
        refuse_autograd(self.name, tensors)
        refuse_overlap(self.name, tensors, written)

    def _written_and_read(self, named: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the tensors among some arguments, those in lists as well: what is written, and what is not."""
        written: list[Tensor] = []
        read: list[Tensor] = []
        for name, value in named.items():
            tensors = written if name in self.written else read
            if isinstance(value, Tensor):
                tensors.append(value)
            elif isinstance(value, (list, tuple)):
                tensors += [item for item in value if isinstance(item, Tensor)]
        return written, read

    def _check_outputs(self, args: tuple[Any, ...], kwargs: dict[str, Any], out: tuple[Any, ...]) -> None:
        assert self.results is not None
        results = self.results(*args, **kwargs)
        device = self.deciding(args, kwargs)[0].device
        _require_count(self.name, out, results)
        for tensors, wanted in zip(out, results, strict=True):
            if isinstance(wanted, list):
                _require_count(self.name, tensors, wanted)
            else:
                tensors, wanted = [tensors], [wanted]
            for tensor, result in zip(tensors, wanted, strict=True):
                _require_result(self.name, tensor, result, device)


def _named_tensors(arguments: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor with its argument's name; items of lists are called ``name[index]``."""
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, (list, tuple)):
            yield from ((f"{name}[{i}]", item) for i, item in enumerate(value) if isinstance(item, Tensor))


def _empty(result: Result | list[Result], device: torch.device) -> Tensor | list[Tensor]:
    if isinstance(result, list):
        return [torch.empty(item.shape, dtype=item.dtype, device=device) for item in result]
    return torch.empty(result.shape, dtype=result.dtype, device=device)


def _require_count(op: str, out: Sequence[Any], wanted: Sequence[Any]) -> None:
    if len(out) != len(wanted):
        raise ValueError(f"{op}: out has {len(out)} tensors, it must have {len(wanted)}")


def _require_result(op: str, tensor: Tensor, result: Result, device: torch.device) -> None:
    shape, dtype = tuple(result.shape), result.dtype
    if (tuple(tensor.shape), tensor.dtype, tensor.device) != (shape, dtype, device):
        raise ValueError(
            f"{op}: out is {tuple(tensor.shape)} {tensor.dtype} on {tensor.device}, "
            f"it must be {shape} {dtype} on {device}"
        )


def declare(operator: Operator) -> Operator:
    """Define an operator and its fake implementation with torch, and remember it."""

    def writes_nothing(*args: Any, **kwargs: Any) -> None:
        return None

    fakes = operator.overloads(operator.guarded(writes_nothing))
    for overload, schema in operator.schemas().items():
        name = operator.qualified_name + overload
        torch.library.define(name, schema, tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.register_fake(name, fakes[overload])
    OPERATORS[operator.name] = operator
    return operator
