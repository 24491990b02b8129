"""What an operator is: a schema, its checks and its results, defined with torch once."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import refuse_autograd, refuse_overlap

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
    """

    name: str
    arguments: str
    check: Callable[..., None]
    results: Callable[..., tuple[Result, ...]] | None = None
    result_count: int = 1

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
    def outputs(self) -> tuple[str, ...]:
        """Names of the output arguments of the ``out`` overload."""
        if self.results is None:
            return ()
        return ("out",) if self.result_count == 1 else tuple(f"out{i}" for i in range(self.result_count))

    def guarded(self, implementation: Callable[..., None]) -> Callable[..., Any]:
        """Return a backend's function behind the checks, with ``out`` optional."""
        if self.results is None:

            def in_place(*args: Any, **kwargs: Any) -> None:
                self._validate(args, kwargs)
                implementation(*args, **kwargs)

            return in_place

        def functional(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            given = () if out is None else tuple(out) if isinstance(out, tuple | list) else (out,)
            self._validate(args, kwargs, given)
            outputs = given or self._allocate(args, kwargs)
            result = outputs[0] if self.result_count == 1 else outputs
            implementation(*args, out=result, **kwargs)
            return result

        return functional

    def overloads(self, implementation: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
        """Return a guarded implementation as the overloads that torch dispatches to."""
        if self.results is None:
            return {"": implementation}

        def with_outputs(*args: Any, **kwargs: Any) -> None:
            out = tuple(kwargs.pop(name) for name in self.outputs)
            implementation(*args, out=out, **kwargs)

        return {"": implementation, ".out": with_outputs}

    def schemas(self) -> dict[str, str]:
        """Return the schema of each overload."""
        if self.results is None:
            return {"": f"({self.arguments}) -> ()"}
        keyword_only = "" if "*" in self.arguments else "*, "
        outputs = ", ".join(f"Tensor({chr(ord('a') + i)}!) {name}" for i, name in enumerate(self.outputs))
        returned = ", ".join(["Tensor"] * self.result_count)
        return {
            "": f"({self.arguments}) -> ({returned})",
            ".out": f"({self.arguments}, {keyword_only}{outputs}) -> ()",
        }

    def _allocate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, ...]:
        assert self.results is not None
        device = first_tensor(args, kwargs).device
        return tuple(
            torch.empty(r.shape, dtype=r.dtype, device=device) for r in self.results(*args, **kwargs)
        )

    def _validate(self, args: tuple[Any, ...], kwargs: dict[str, Any], out: tuple[Tensor, ...] = ()) -> None:
        """Refuse arguments that do not fit, want a gradient, or share memory that is written."""
        self.check(*args, **kwargs)
        named = dict(zip(self.parameters, args, strict=False)) | kwargs
        if out:
            self._check_outputs(args, kwargs, out)
            named |= dict(zip(self.outputs, out, strict=True))
        tensors = _flatten(named)
        refuse_autograd(self.name, tensors)
        refuse_overlap(self.name, tensors, [name for name in tensors if name.split("[")[0] in self.written])

    def _check_outputs(self, args: tuple[Any, ...], kwargs: dict[str, Any], out: tuple[Tensor, ...]) -> None:
        assert self.results is not None
        results = self.results(*args, **kwargs)
        if len(out) != len(results):
            raise ValueError(f"{self.name}: out has {len(out)} tensors, it must have {len(results)}")
        device = first_tensor(args, kwargs).device
        for tensor, (shape, dtype) in zip(out, results, strict=True):
            if (tuple(tensor.shape), tensor.dtype, tensor.device) != (tuple(shape), dtype, device):
                raise ValueError(
                    f"{self.name}: out is {tuple(tensor.shape)} {tensor.dtype} on {tensor.device}, "
                    f"it must be {tuple(shape)} {dtype} on {device}"
                )


def first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return the first tensor of a call, lists included: its device and dtype choose the backend.

    Raises:
        ValueError: There is none.
    """
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            return value
        if isinstance(value, list | tuple) and value and isinstance(value[0], Tensor):
            return value[0]
    raise ValueError("an operator was called without a tensor, lists must not be empty")


def _flatten(named: dict[str, Any]) -> dict[str, Tensor]:
    """Return the tensors among named arguments; those of a list are called ``name[i]``."""
    tensors: dict[str, Tensor] = {}
    for name, value in named.items():
        if isinstance(value, Tensor):
            tensors[name] = value
        elif isinstance(value, list | tuple):
            tensors |= {f"{name}[{i}]": item for i, item in enumerate(value) if isinstance(item, Tensor)}
    return tensors


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
