"""How the operator tests run an operator: on a named backend, between guard bands, with a witness."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from kpop_kernels import _schema, backends
from tests.guards import Guarded, bits

Tensors = Mapping[str, Tensor | None]

CPU = ("cpu-avx512", "cpu-avx2", "cpu-baseline")
"""Variants of the cpu backend: one for each instruction set."""

FUSING = CPU[:2]
"""Those whose products round a b + c once: their results have the same bits."""


class Launcher:
    """One operator of one backend; every call asserts that this backend ran, and once.

    Skips the test where the backend, or the instruction set of a variant like "cpu-avx2", is not there.
    """

    def __init__(self, op: str, variant: str) -> None:
        self.operator = _schema.OPERATORS[op]
        self.name, _, self.isa = variant.partition("-")
        backend = backends.get(self.name)
        if backend.reason is not None:
            pytest.skip(f"backend {self.name}: {backend.reason}")
        self._function = getattr(backend, op)
        with self._instruction_set():
            pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._instruction_set(), backends.trace() as counter:
            result = self._function(*args, **kwargs)
        assert counter == {(self.operator.name, self.name): 1}
        return result

    def _instruction_set(self) -> Any:
        if not self.isa:
            return nullcontext()
        from kpop_kernels.backends.cpu import native

        try:
            chosen = native.Cpu(self.isa)
        except ValueError as error:
            pytest.skip(str(error))
        assert chosen.isa == self.isa
        return native.using(self.isa)


def outcome(
    function: Callable[..., Any], tensors: Tensors, written: Iterable[str], **scalars: Any
) -> tuple[Tensor, ...]:
    """Call an operator between guard bands and return what it wrote, or else its results.

    Every tensor is replaced by a copy with its strides inside NaN; afterwards the bands and all tensors that
    are only read must hold the bits they held before.
    """
    copies = {name: Guarded(tensor) for name, tensor in tensors.items() if tensor is not None}
    arguments = [copies[name].tensor if name in copies else None for name in tensors]
    result = function(*arguments, **scalars)
    for name, copy in copies.items():
        copy.assert_intact(name) if name in written else copy.assert_unchanged(name)
    if written:
        return tuple(copies[name].tensor for name in written)
    return result if isinstance(result, tuple) else (result,)


def assert_same_bits(first: Iterable[Tensor], second: Iterable[Tensor]) -> None:
    """Require equal results bit for bit."""
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype and torch.equal(bits(a.contiguous()), bits(b.contiguous()))


def transposed(tensor: Tensor) -> Tensor:
    """Return the same values with the last two dimensions swapped in memory."""
    return tensor.mT.contiguous().mT


def sliced(tensor: Tensor) -> Tensor:
    """Return the same values as every second element and row of a larger tensor, not at its start."""
    *batch, m, n = tensor.shape
    return tensor.new_zeros(*batch, 2 * m + 1, 2 * n + 1)[..., 1::2, 1::2].copy_(tensor)


def padded(tensor: Tensor) -> Tensor:
    """Return the same values with contiguous rows that lie apart."""
    *batch, m, n = tensor.shape
    return tensor.new_zeros(*batch, m, n + 3)[..., :n].copy_(tensor)


LAYOUTS = {"transposed": transposed, "sliced": sliced, "padded": padded}


def strided(tensor: Tensor, layout: str) -> Tensor:
    """Return the same values in a named layout, "contiguous" included."""
    return LAYOUTS[layout](tensor) if layout in LAYOUTS else tensor.contiguous()


def assert_compiles(
    function: Callable[..., Any], tensors: Tensors, written: Iterable[str], **scalars: Any
) -> None:
    """Require the public function to compile without graph breaks and to give eager's bits."""
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert_same_bits(
        outcome(compiled, tensors, written, **scalars), outcome(function, tensors, written, **scalars)
    )
