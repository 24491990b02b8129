"""What is measured: a case is one problem, a variant is one way to compute it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kpop_kernels import backends

Inputs = dict[str, Tensor]
Results = Sequence[Tensor]


@dataclass(frozen=True)
class Variant:
    """One way to compute a case.

    Attributes:
        name: Backend of this package, or name of the rival.
        run: One launch: takes inputs, which it may overwrite, or what `setup` made of them, and returns what is
            judged.
        setup: Makes what `run` takes out of inputs, once before all launches. Not timed.
        ours: Whether it is a backend of this package; the others are rivals.
        value: Makes tensors that the oracle's can be compared with out of what `run` returned. Not timed.
        oracle: What a variant must give that by design computes something else than the case's oracle.
        bound: Largest error that goes with `oracle`.
    """

    name: str
    run: Callable[[Any], Any]
    setup: Callable[[Inputs], Any] | None = None
    ours: bool = False
    value: Callable[[Any], Results] | None = None
    oracle: Callable[[Inputs], Results] | None = None
    bound: float | None = None

    def bind(self, inputs: Inputs) -> Callable[[], Any]:
        """Return a launch on inputs of its own."""
        own = {name: tensor.clone() for name, tensor in inputs.items()}
        return partial(self.run, own if self.setup is None else self.setup(own))


@dataclass(frozen=True)
class Case:
    """One problem: its inputs, what it must cost at least, what it must give, and who computes it.

    Attributes:
        op: Operator, or a name for what several rivals do.
        shape: The sizes that the cost depends on.
        dtype: Element type of the inputs; bytes and operations are charged at its rate.
        bytes: Memory that must be read and written at least once.
        flops: Floating-point operations that the mathematics needs; a symmetric result counts one triangle.
        make: Makes inputs on the CPU; the same seed gives the same values.
        oracle: What must come out, in float64.
        bound: Largest relative Frobenius error of each result.
        variants: Who takes part.
        setting: What else tells the case from others of the operator, such as ``p=4``.
        repeats: How often one launch does it; times are for once, bytes and operations too.
        left_out: Rivals that do not take part, and why.
    """

    op: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int
    flops: int
    make: Callable[[torch.Generator], Inputs]
    oracle: Callable[[Inputs], Results]
    bound: float
    variants: Sequence[Variant]
    setting: str = ""
    repeats: int = 1
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Return the case in words."""
        parts = (self.op, "×".join(map(str, self.shape)), dtype_name(self.dtype), self.setting)
        return " ".join(filter(None, parts))

    def inputs(self, device: str, seed: int = 0) -> Inputs:
        """Return inputs on a device."""
        generator = torch.Generator().manual_seed(seed)
        return {name: tensor.to(device) for name, tensor in self.make(generator).items()}


Call = Callable[[Callable[..., Any], Inputs], Any]
"""Calls an operator's function with inputs and returns the results."""


def ours(op: str, call: Call, device: str, dtype: torch.dtype) -> Iterator[Variant]:
    """Yield a variant for each backend that serves an operator on a device."""
    for name, reason in backends.available().items():
        backend = backends.get(name)
        serves = not backend.devices or device in backend.devices
        if reason is None and serves and op in backend.operators and dtype in backend.dtypes:
            yield Variant(name, partial(call, getattr(backend, op)), ours=True)


def compiled(function: Callable[..., Any], call: Call) -> Variant:
    """Return torch.compile of a function as a rival; it compiles at its first launch."""
    return Variant("torch.compile", partial(call, torch.compile(function, dynamic=False)))


def frobenius_error(result: Tensor, expected: Tensor) -> float:
    """Return ‖result - expected‖ / ‖expected‖ in float64, or ‖result‖ where nothing is expected."""
    expected = expected.to("cpu", torch.float64)
    difference = torch.linalg.vector_norm(result.detach().to("cpu", torch.float64) - expected)
    return float(difference / (torch.linalg.vector_norm(expected) or 1.0))


def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name of a dtype without the module."""
    return str(dtype).removeprefix("torch.")


def normal(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal random numbers."""
    return torch.randn(shape, generator=generator).to(dtype)


def orthogonal(n: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return a random orthogonal matrix."""
    return torch.linalg.qr(torch.randn((n, n), generator=generator)).Q.to(dtype)


def spd(n: int, condition: float, generator: torch.Generator) -> Tensor:
    """Return a random symmetric positive definite matrix in float64, eigenvalues log-spaced from 1 down."""
    Q = torch.linalg.qr(torch.randn((n, n), generator=generator, dtype=torch.float64)).Q
    eigvals = torch.logspace(0, -torch.tensor(condition).log10().item(), n, dtype=torch.float64)
    S = (Q * eigvals) @ Q.mT
    return (S + S.mT) / 2
