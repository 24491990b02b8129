"""The availability table: which technology serves which device, and why not.

A backend is a folder with one function an operator. `get` gives one by name, every function behind the same
checks; torch's dispatcher is given the first backend of `ORDER` that serves an operator for a device and
dtype.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from .._schema import OPERATORS, Operator
from .._schema.checks import own_their_memory
from .._schema.remembered import examine

ORDER: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu", "composite"),
    "cuda": ("triton", "cuda", "composite"),
    "mps": ("metal", "composite"),
}
"""Backends of a device type, best first; devices not listed are served by composite."""

ONE_BLOCK_FIRST = (
    *("inverse_root", "inverse_root_foreach", "kron_rotate"),
    *("kron_adam_", "kron_adam_foreach_", "kron_adam8_", "kron_adam8_foreach_"),
)
"""Operators that CUDA C++ finishes in one launch where a thread block holds all that a product sums over, before
Triton's many; sides with a longer basis go to Triton."""

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of a call."""

NAMES = ("composite", "cpu", "triton", "cuda", "metal")

_observers: list[Counter[tuple[str, str]]] = []


class Backend:
    """One technology: its operators as attributes, what it serves, and why it is absent if it is.

    Attributes:
        name: Folder under ``kpop_kernels/backends``.
        reason: Why the backend cannot run here; None when it can.
        dtypes: Element types that it computes with.
        devices: Device types that it runs on; empty for all.
        operators: Names of the operators it implements.
    """

    def __init__(self, name: str) -> None:
        module = import_module(f"{__name__}.{name}")
        self.name = name
        self.reason: str | None = module.absent_because()
        self.dtypes: tuple[torch.dtype, ...] = module.DTYPES
        self.devices: tuple[str, ...] = module.DEVICES
        self._refusal: Callable[[str, Tensor, Mapping[str, Any]], str | None] | None = getattr(
            module, "refusal", None
        )
        self._guarded: dict[str, Callable[..., Any]] = {}
        self._counted: dict[str, Callable[..., None]] = {}
        if self.reason is None:
            implementations = complete(module.implementations())
            for op, implementation in implementations.items():
                self._counted[op] = self._count(op, implementation)
                self._guarded[op] = OPERATORS[op].guarded(self._refuse_unserved(OPERATORS[op]))

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of the operators that can be called here."""
        return tuple(self._guarded)

    def serves(self, op: str, *tensors: Tensor, call: Call | None = None) -> bool:
        """Tell whether this backend runs an operator for the device, dtype and shape of all the tensors.

        Args:
            op: Name of the operator.
            *tensors: The tensors that decide.
            call: All arguments, where they are known; else any that may be None is thought not to be.
        """
        return (
            op in self._guarded
            and all(self._computes(*kind) for kind in _kinds(tensors))
            and self._why_refused(OPERATORS[op], tensors, call) is None
        )

    def why_not(self, op: str, device_type: str) -> str | None:
        """Say why an operator is not served for a device type; None when it is."""
        if self.devices and device_type not in self.devices:
            return f"{self.name} runs on {', '.join(self.devices)}"
        if self.reason is not None:
            return self.reason
        return None if op in self._guarded else f"{self.name} has no {op}"

    def unchecked(self, op: str) -> Callable[..., None]:
        """Return the function that writes an operator's results, for arguments that are known to fit."""
        return self._counted[op]

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("__") or op not in OPERATORS:
            raise AttributeError(f"backend {self.name!r} has no attribute {op!r}")
        if self.reason is not None:
            raise RuntimeError(f"backend {self.name!r} is not available: {self.reason}")
        if op not in self._guarded:
            raise NotImplementedError(f"backend {self.name!r} does not implement {op}")
        return self._guarded[op]

    def _why_refused(self, op: Operator, tensors: Sequence[Tensor], call: Call | None) -> str | None:
        """Say why the shape of one of the tensors is not served; None where all are."""
        if self._refusal is None:
            return None
        items: Iterable[Mapping[str, Any]] = repeat({}) if call is None else op.items(*call)
        refusals = (self._refusal(op.name, *pair) for pair in zip(tensors, items, strict=False))
        return next(filter(None, refusals), None)

    def _computes(self, dtype: torch.dtype, device: torch.device) -> bool:
        return dtype in self.dtypes and (not self.devices or device.type in self.devices)

    def _refuse_unserved(self, op: Operator) -> Callable[..., None]:
        def run(*args: Any, **kwargs: Any) -> None:
            tensors = op.deciding(args, kwargs)
            if (refusal := self._why_refused(op, tensors, (args, kwargs))) is not None:
                raise ValueError(f"{op.name}: backend {self.name!r} {refusal}")
            for dtype, device in _kinds(tensors):
                if self._computes(dtype, device):
                    continue
                served = ", ".join(str(each).removeprefix("torch.") for each in self.dtypes)
                raise TypeError(
                    f"{op.name}: backend {self.name!r} does not serve {dtype} on {device}, "
                    f"it serves {served} on {', '.join(self.devices) or 'any device'}"
                )
            self._counted[op.name](*args, **kwargs)

        return run

    def _count(self, op: str, implementation: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any, **kwargs: Any) -> None:
            for observer in _observers:
                observer[op, self.name] += 1
            implementation(*args, **kwargs)

        return run


def _kinds(tensors: Sequence[Tensor]) -> set[tuple[torch.dtype, torch.device]]:
    """Return the dtypes and devices among tensors."""
    return {(tensor.dtype, tensor.device) for tensor in tensors}


def get(name: str) -> Backend:
    """Return a backend by name; its operators are attributes that bypass torch's dispatcher.

    Raises:
        ValueError: There is no backend of that name.
    """
    if name not in _BACKENDS:
        raise ValueError(f"backend {name!r} is unknown, it must be one of {', '.join(NAMES)}")
    return _BACKENDS[name]


def available() -> dict[str, str | None]:
    """Return every backend's name with the reason why it cannot run here, None for those that can."""
    return {name: backend.reason for name, backend in _BACKENDS.items()}


def serving(op: str, *tensors: Tensor, call: Call | None = None) -> Backend:
    """Return the backend that torch's dispatcher uses for an operator and the tensors that decide.

    One tensor decides, or all items of a list for an operator on lists.

    Args:
        op: Name of the operator.
        *tensors: The tensors that decide.
        call: All arguments, as in `Backend.serves`.
    """
    names = ORDER.get(tensors[0].device.type, ("composite",))
    if op in ONE_BLOCK_FIRST and "cuda" in names:
        names = ("cuda", *names)
    for name in names:
        if _BACKENDS[name].serves(op, *tensors, call=call):
            return _BACKENDS[name]
    return _BACKENDS["composite"]


@contextmanager
def trace() -> Iterator[Counter[tuple[str, str]]]:
    """Count what served each operator call: yields a counter keyed by (operator, backend)."""
    counter: Counter[tuple[str, str]] = Counter()
    _observers.append(counter)
    try:
        yield counter
    finally:
        _observers[:] = [observer for observer in _observers if observer is not counter]


def complete(implementations: dict[str, Callable[..., None]]) -> dict[str, Callable[..., None]]:
    """Derive operators on lists from those on one item where a backend has only these, and the reverse."""
    derived = {}
    for op in OPERATORS.values():
        if op.single is None:
            continue
        if op.single.name in implementations:
            derived[op.name] = _one_by_one(op, implementations[op.single.name])
        elif op.name in implementations:
            derived[op.single.name] = _list_of_one(op, implementations[op.name])
    return derived | implementations


def _one_by_one(op: Operator, implementation: Callable[..., None]) -> Callable[..., None]:
    def run(*args: Any, **kwargs: Any) -> None:
        for item in op.items(args, kwargs):
            implementation(**item)

    return run


def _list_of_one(op: Operator, implementation: Callable[..., None]) -> Callable[..., None]:
    assert op.single is not None
    single, defaults = op.single, op.item_defaults

    def run(*args: Any, out: Any = None, **kwargs: Any) -> None:
        named = defaults | single.named(args, kwargs)
        for name in op.listed:
            if name in named:
                named[name] = (named[name],)
        if out is not None:
            named["out"] = (out,) if op.result_count == 1 else tuple([(result,) for result in out])
        implementation(**named)

    return run


def _routed(op: Operator) -> Callable[..., Any]:
    """Return the function that calls the backend that serves, with ``out`` optional."""

    def routed(*args: Any, **kwargs: Any) -> Any:
        backend = serving(op.name, *op.deciding(args, kwargs), call=(args, kwargs))
        return getattr(backend, op.name)(*args, **kwargs)

    return routed


_MOST_REMEMBERED = 4096
"""Kinds of calls of an overload; a loop over ever new sizes or numbers must not fill the memory."""


def _remembering(op: Operator, overload: str, in_full: Callable[..., Any]) -> Callable[..., Any]:
    """Return an overload that is called in full, checks and all, only for the first of calls that are alike.

    Whether tensors share memory or want gradients is looked at each time.
    """
    served: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def run(*args: Any, **kwargs: Any) -> Any:
        call = examine(op.parameters, op.written_names, args, kwargs)
        if call is None or not own_their_memory(call.written, call.read):
            return in_full(*args, **kwargs)
        known = served.get(call.signature)
        if known is not None:
            return known(*args, **kwargs)
        result = in_full(*args, **kwargs)
        if len(served) == _MOST_REMEMBERED:
            served.clear()
        backend = serving(op.name, *op.deciding(args, kwargs), call=(args, kwargs))
        served[call.signature] = op.unguarded(backend.unchecked(op.name), args, kwargs)[overload]
        return result

    return run


def _register(op: Operator) -> None:
    """Give an operator to torch's dispatcher: composite everywhere, the best backend where there is one."""
    composite = getattr(_BACKENDS["composite"], op.name)
    for overload, function in op.overloads(composite).items():
        torch.library.impl(op.qualified_name + overload, "default", function)
    for device_type, names in ORDER.items():
        if any(op.name in _BACKENDS[name].operators for name in names if name != "composite"):
            for overload, function in op.overloads(_routed(op)).items():
                remembering = _remembering(op, overload, function)
                torch.library.impl(op.qualified_name + overload, device_type, remembering)


_BACKENDS = {name: Backend(name) for name in NAMES}
for _op in OPERATORS.values():
    _register(_op)
